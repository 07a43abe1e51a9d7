#!/usr/bin/env python3
"""Goldens of tiny random models of the other families, from transformers' own classes (eager attention).

    python3 -m venv V && V/bin/pip install -r tests/golden/requirements.txt && V/bin/python tests/golden/make_families.py [FOLDER]

Per variant: NAME.golden and NAME.config.json; arrays, double precision and the checks against the fp32 model as shipped and
against a model with the variant's feature off are those of make_llama.py. The architecture is in the config.json alone.
"""
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Callable

import numpy as np
import torch
import transformers
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

import formula
import make_llama
from golden_file import GoldenWriter
from make_llama import B, T, TorchWithDouble, VOCAB, DoubleRotary

SHAPE = make_llama.SHAPE
WINDOW = 16
ROPE = dict(rope_type="default", rope_theta=10000.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)


@dataclass
class Variant:
    config: type
    model: type
    module: ModuleType  # where the modelling code's name "torch" lives
    keys: dict
    lacking: str  # what the twin lacks
    twin: Callable  # (model in fp32) -> None: takes it away


def without_window(model) -> None:
    model.config.sliding_window = T
    for layer in model.model.layers:
        layer.self_attn.sliding_window = T


def without_biases(model) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("proj.bias"):
            parameter.data.zero_()


def without_qk_norm(model) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()


def without_attention_factor(model) -> None:
    model.model.rotary_emb.attention_scaling = 1.0


def without_positions(model) -> None:
    model.transformer.wpe.weight.data.zero_()


QWEN_WINDOW = dict(use_sliding_window=True, sliding_window=WINDOW)
MISTRAL = (transformers.MistralConfig, transformers.MistralForCausalLM, modeling_mistral)
QWEN2 = (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, modeling_qwen2)
QWEN3 = (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, modeling_qwen3)
LLAMA = (transformers.LlamaConfig, transformers.LlamaForCausalLM, make_llama.modeling_llama)
GPT2 = (transformers.GPT2Config, transformers.GPT2LMHeadModel, modeling_gpt2)
GPT2_SHAPE = dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=128)
VARIANTS = {
    "gpt2": Variant(*GPT2, GPT2_SHAPE, "its positions", without_positions),
    "gpt2_untied": Variant(*GPT2, GPT2_SHAPE | dict(n_inner=96, tie_word_embeddings=False), "its positions",
                           without_positions),
    "llama_biases": Variant(*LLAMA, dict(head_dim=16, attention_bias=True, mlp_bias=True), "its biases", without_biases),
    "llama_yarn": Variant(*LLAMA, dict(head_dim=32, rope_parameters=YARN), "the factor of cosines and sines",
                          without_attention_factor),
    "mistral_window": Variant(*MISTRAL, dict(head_dim=24, sliding_window=WINDOW), "its window", without_window),
    "qwen2_biases": Variant(*QWEN2, dict(tie_word_embeddings=True), "its biases", without_biases),
    "qwen2_window": Variant(*QWEN2, QWEN_WINDOW | dict(max_window_layers=1), "its window", without_window),
    "qwen3_tied": Variant(*QWEN3, dict(head_dim=32, tie_word_embeddings=True), "its norms of q and k", without_qk_norm),
    "qwen3_window": Variant(*QWEN3, QWEN_WINDOW | dict(head_dim=16, attention_bias=True,
                                                       layer_types=["sliding_attention", "full_attention"]),
                            "its window", without_window),
}


def config_of(variant: Variant):
    shared = {} if variant.config is transformers.GPT2Config else SHAPE | dict(rope_parameters=dict(ROPE))
    config = variant.config(**shared | variant.keys, attn_implementation="eager", bos_token_id=1, eos_token_id=2)
    config.architectures, config.dtype = [variant.model.__name__], "float32"
    return config


def model_of(variant: Variant, dtype: torch.dtype):
    config = config_of(variant)
    model = variant.model(config).to(dtype).eval()  # without dropout
    double = dtype == torch.float64
    variant.module.torch = TorchWithDouble("torch") if double else torch
    if hasattr(model, "model"):
        rotary = model.model.rotary_emb
        wanted = make_llama.inverse_frequencies(rotary_of(config_of(variant)))
        assert np.allclose(rotary.inv_freq.double().numpy(), wanted, rtol=1e-6)
        if double:
            model.model.rotary_emb = DoubleRotary(rotary_of(config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(formula.weight(name, tuple(parameter.shape))))
    return model


def rotary_of(config):
    """What DoubleRotary reads, for configs that leave head_dim out."""
    config.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config


def store_model(out: GoldenWriter, name: str) -> None:
    for key, value in dict(name=name, torch=torch.__version__, transformers=transformers.__version__, batch=B, length=T,
                           vocab=VOCAB).items():
        out.set(key, value)


def make(name: str, folder: str) -> None:
    variant = VARIANTS[name]
    double = model_of(variant, torch.float64)
    shapes = {n: tuple(p.shape) for n, p in double.named_parameters()}
    want = make_llama.first_step(double)
    run = make_llama.training_run(double)
    twin = model_of(variant, torch.float32)
    shipped = make_llama.first_step(twin)
    spread = make_llama.distances(shipped, want)
    variant.twin(twin)
    lacking = make_llama.first_step(twin)
    gone = {n: want[2][n] * 0 for n in want[2] if n not in lacking[2]}  # a norm that the twin has not
    apart = make_llama.distances((*lacking[:2], lacking[2] | gone), want)

    out = GoldenWriter()
    store_model(out, name)
    make_llama.store_results(out, *want)
    make_llama.store_run(out, *run, shapes)
    size = out.write(os.path.join(folder, f"{name}.golden"))
    config_of(variant).to_json_file(os.path.join(folder, f"{name}.config.json"))

    show = lambda d: "  ".join(f"{k} {v:.1e}" for k, v in d.items())
    print(f"{name}: {size} bytes, loss {want[0]:.6f}, run {run[0][0]:.4f} -> {run[0][-1]:.4f}")
    print(f"  fp32 as shipped   {show(spread)}")
    print(f"  without {variant.lacking}: {show(apart)}")
    assert size <= 300_000 and spread["loss"] < 1e-6 and spread["logits"] < 5e-6 and spread["grads"] < 2e-5
    assert apart["logits"] > 1e-2


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for variant in VARIANTS:
        make(variant, sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__)))
