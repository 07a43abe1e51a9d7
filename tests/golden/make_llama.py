#!/usr/bin/env python3
"""Goldens of tiny random Llama-family models, from transformers' LlamaForCausalLM (eager attention).

    python3 -m venv V && V/bin/pip install -r tests/golden/requirements.txt && V/bin/python tests/golden/make_llama.py [FOLDER]

Per variant: llama_NAME.golden (golden_file.py) and llama_NAME.config.json as transformers writes it. Weights and tokens are
formulas (formula.py). What is stored comes from transformers' own code run in double precision: its explicit casts to fp32
(norms, softmax) become casts to fp64, and rotary angles are computed in double from the published formulas. The script also
runs the fp32 model as shipped, prints its distance from the stored values (so a tolerance can be seen to be sane) and the
distance of a model with the variant's feature off (so it can be seen to have teeth), and fails if either is not as it should be.

Arrays of a golden (all double precision, rounded once where stored as f32):
    loss                      mean over the B*T targets of batch 0
    logits.row_index          rows of [B*T, vocab] that are stored whole; logits.rows: those rows
    logits.norm, .projection  per row of all B*T: its L2 norm; its dot product with uniform("projection.0", vocab)
    grad.NAME.norm            L2 norm of the parameter's gradient, then either
    grad.NAME.full            the gradient (at most 4096 elements), or
    grad.NAME.index, .sample, .projection    256 elements; dot products with uniform("projection.J", n), J = 0 .. 3
    run.loss, run.grad_norm   20 AdamW steps (RUN below): batch k's loss before update k, the norm before clipping
    final.NAME.moved          L2 norm of (final - initial) weights
    final.NAME.index, .sample 64 elements of the final weights
    formula.*                 samples of the formulas, for the test that compares languages
"""
import os
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

import formula
from golden_file import GoldenWriter

B, T, VOCAB = 2, 77, 256
ROWS = [0, 1, 31, 32, 33, 50, 75, 76]  # stored whole, in each sequence: ends, and both sides of position 32
FULL, SAMPLES, FINAL_SAMPLES, PROJECTIONS = 4096, 256, 64, 4
RUN = dict(steps=20, lr=1e-3, warmup=5, clip=1.0, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1)
SHAPE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5)
LINEAR = dict(rope_type="linear", factor=4.0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
VARIANTS = {  # name: (head_dim, tied, rope parameters, what the twin lacks)
    "untied": (16, False, {}, "its rotary base (theta 500000 instead)"),
    "tied": (16, True, {}, "the tie (a head of its own)"),
    "linear": (16, False, LINEAR, "rotary scaling"),
    "llama3": (16, False, LLAMA3, "rotary scaling"),
    "head_dim": (24, False, {}, "head_dim's own scale (1/sqrt(hidden/heads))"),
}


def config_of(head_dim: int, tied: bool, rope: dict) -> LlamaConfig:
    parameters = dict(rope_type="default", rope_theta=10000.0) | rope
    config = LlamaConfig(**SHAPE, head_dim=head_dim, tie_word_embeddings=tied, rope_parameters=parameters,
                         attn_implementation="eager", bos_token_id=1, eos_token_id=2)
    config.architectures, config.dtype = ["LlamaForCausalLM"], "float32"
    return config


def inverse_frequencies(config: LlamaConfig) -> np.ndarray:
    """The published formulas (RoPE; position interpolation; Llama 3.1), in double."""
    rope = config.rope_parameters
    inverse = rope["rope_theta"] ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    if rope["rope_type"] == "linear":
        return inverse / rope["factor"]
    if rope["rope_type"] == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] * inverse / (2 * np.pi)
        keep = np.clip((turns - low) / (high - low), 0, 1)
        return keep * inverse + (1 - keep) * inverse / rope["factor"]
    if rope["rope_type"] == "yarn":
        pair = lambda turns: (config.head_dim * np.log(rope["original_max_position_embeddings"] / (turns * 2 * np.pi))
                              / (2 * np.log(rope["rope_theta"])))
        low, high = max(np.floor(pair(32)), 0), np.ceil(pair(1))
        slow = np.clip((np.arange(config.head_dim // 2) - low) / (high - low), 0, 1)
        return slow * inverse / rope["factor"] + (1 - slow) * inverse
    return inverse


def attention_factor(config: LlamaConfig) -> float:
    rope = config.rope_parameters
    return 0.1 * np.log(rope["factor"]) + 1 if rope["rope_type"] == "yarn" else 1.0


class DoubleRotary(torch.nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.frequencies = torch.from_numpy(inverse_frequencies(config))
        self.factor = attention_factor(config)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return self.factor * angles.cos(), self.factor * angles.sin()


class TorchWithDouble(types.ModuleType):
    """torch as the modelling code sees it in a double run: float32 means float64."""
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def model_of(config: LlamaConfig, dtype: torch.dtype) -> LlamaForCausalLM:
    model = LlamaForCausalLM(config).to(dtype)
    shipped = model.model.rotary_emb.inv_freq.double().numpy()
    assert np.allclose(shipped, inverse_frequencies(config), rtol=1e-6), "our rotary formula is not transformers'"
    modeling_llama.torch = TorchWithDouble("torch") if dtype == torch.float64 else torch
    if dtype == torch.float64:
        model.model.rotary_emb = DoubleRotary(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(formula.weight(name, tuple(parameter.shape))))
    return model


def loss_and_logits(model, step: int):
    window = torch.from_numpy(formula.batch(step, B, T))
    logits = model(window[:, :-1]).logits.reshape(B * T, VOCAB)
    return F.cross_entropy(logits, window[:, 1:].reshape(-1)), logits


def gradients(model) -> dict:
    return {name: p.grad.double().numpy().reshape(-1) for name, p in model.named_parameters()}


def first_step(model):
    """Loss, logits [B*T, vocab] and gradients of batch 0."""
    model.zero_grad()
    loss, logits = loss_and_logits(model, 0)
    loss.backward()
    return loss.item(), logits.detach().double().numpy(), gradients(model)


def training_run(model):
    """Losses, gradient norms and final weights of RUN."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=RUN["decay"]), dict(params=others, weight_decay=0.0)],
                                  lr=RUN["lr"], betas=(RUN["beta1"], RUN["beta2"]), eps=RUN["eps"], foreach=False)
    losses, norms = [], []
    for step in range(RUN["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = RUN["lr"] * min(1.0, (step + 1) / RUN["warmup"])
        optimizer.zero_grad()
        loss, _ = loss_and_logits(model, step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), RUN["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, {n: p.detach().double().numpy().reshape(-1) for n, p in model.named_parameters()}


def sample_index(name: str, numel: int, count: int) -> np.ndarray:
    """count distinct elements, one at random in each of count equal strides."""
    stride = numel // count
    return np.arange(count) * stride + (formula.hashes("sample." + name, count) % np.uint64(stride)).astype(np.int64)


def store_results(out: GoldenWriter, loss: float, logits: np.ndarray, grads: dict) -> None:
    rows = [b * T + t for b in range(B) for t in ROWS]
    out.array("loss", "f64", [loss])
    out.array("logits.row_index", "i32", rows)
    out.array("logits.rows", "f32", logits[rows])
    out.array("logits.norm", "f64", np.linalg.norm(logits, axis=1))
    out.array("logits.projection", "f64", logits @ formula.uniform("projection.0", VOCAB).astype(np.float64))
    for name, grad in grads.items():
        out.array(f"grad.{name}.norm", "f64", [np.linalg.norm(grad)])
        if grad.size <= FULL:
            out.array(f"grad.{name}.full", "f32", grad)
            continue
        index = sample_index(name, grad.size, SAMPLES)
        out.array(f"grad.{name}.index", "i32", index)
        out.array(f"grad.{name}.sample", "f32", grad[index])
        out.array(f"grad.{name}.projection", "f64",
                  [grad @ formula.uniform(f"projection.{j}", grad.size).astype(np.float64) for j in range(PROJECTIONS)])


def store_run(out: GoldenWriter, losses, norms, final: dict, shapes: dict) -> None:
    for key, value in RUN.items():
        out.set(f"run.{key}", value)
    out.array("run.loss", "f64", losses)
    out.array("run.grad_norm", "f64", norms)
    for name, weights in final.items():
        index = sample_index(name, weights.size, min(FINAL_SAMPLES, weights.size))
        initial = formula.weight(name, shapes[name]).reshape(-1).astype(np.float64)
        out.array(f"final.{name}.moved", "f64", [np.linalg.norm(weights - initial)])
        out.array(f"final.{name}.index", "i32", index)
        out.array(f"final.{name}.sample", "f32", weights[index])


def store_model(out: GoldenWriter, name: str, config: LlamaConfig) -> None:
    rope = config.rope_parameters
    for key, value in dict(
            name=name, torch=torch.__version__, transformers=transformers.__version__, batch=B, length=T, vocab=VOCAB,
            hidden=config.hidden_size, intermediate=config.intermediate_size, layers=config.num_hidden_layers,
            heads=config.num_attention_heads, kv_heads=config.num_key_value_heads, head_dim=config.head_dim,
            max_positions=config.max_position_embeddings, norm_eps=config.rms_norm_eps, tied=int(config.tie_word_embeddings),
            rope_type=rope["rope_type"], rope_theta=rope["rope_theta"], rope_factor=rope.get("factor", 1.0),
            rope_low_freq_factor=rope.get("low_freq_factor", 1.0), rope_high_freq_factor=rope.get("high_freq_factor", 4.0),
            rope_original_max_position=rope.get("original_max_position_embeddings", 8192)).items():
        out.set(key, value)
    out.array("formula.weight.model.norm.weight", "f32", formula.weight("model.norm.weight", (64,)))
    out.array("formula.weight.model.layers.1.self_attn.k_proj.weight", "f32",
              formula.weight("model.layers.1.self_attn.k_proj.weight", (2 * config.head_dim, 64)).reshape(-1)[:64])
    out.array("formula.batch.3", "i32", formula.batch(3, B, T))


def twin_of(name: str, config: LlamaConfig) -> LlamaForCausalLM:
    """The fp32 model with the variant's feature off: what the golden must tell apart."""
    if name == "untied":
        other = config_of(config.head_dim, False, dict(rope_theta=500000.0))
        return model_of(other, torch.float32)
    if name == "tied":
        return model_of(config_of(config.head_dim, False, {}), torch.float32)
    if name == "head_dim":
        model = model_of(config, torch.float32)
        for layer in model.model.layers:
            layer.self_attn.scaling = (config.hidden_size // config.num_attention_heads) ** -0.5
        return model
    return model_of(config_of(config.head_dim, False, {}), torch.float32)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def seen(a: np.ndarray, b: np.ndarray, projections: int) -> float:
    """The same distance as projections see it: what parity_helpers.cpp measures where a golden is not whole."""
    directions = [formula.uniform(f"projection.{j}", a.size).astype(np.float64) for j in range(projections)]
    return float(3**0.5 * max(abs((a - b) @ u) for u in directions) / np.linalg.norm(b))


def distances(got, want) -> dict:
    """How far (loss, logits, gradients) are from each other: loss relative, the worst row of logits, the worst gradient; both
    exactly and as projections see them."""
    return dict(loss=abs(got[0] - want[0]) / want[0],
                logits=max(apart(a, b) for a, b in zip(got[1], want[1])),
                logits_seen=max(seen(a, b, 1) for a, b in zip(got[1], want[1])),
                grads=max(apart(got[2][n], want[2][n]) for n in want[2]),
                grads_seen=max(seen(got[2][n], want[2][n], PROJECTIONS) for n in want[2]))


def make(name: str, folder: str) -> None:
    head_dim, tied, rope, lacking = VARIANTS[name]
    config = config_of(head_dim, tied, rope)
    double = model_of(config, torch.float64)
    shapes = {n: tuple(p.shape) for n, p in double.named_parameters()}
    want = first_step(double)
    run = training_run(double)

    single = model_of(config, torch.float32)
    spread = distances(first_step(single), want)
    single_run = training_run(single)
    spread["run_loss"] = max(abs(a - b) for a, b in zip(single_run[0], run[0]))
    spread["final"] = max(apart(single_run[2][n] - formula.weight(n, shapes[n]).reshape(-1),
                                run[2][n] - formula.weight(n, shapes[n]).reshape(-1)) for n in shapes)
    twin = distances(first_step(twin_of(name, config)), want)

    out = GoldenWriter()
    store_model(out, name, config)
    store_results(out, *want)
    store_run(out, *run, shapes)
    size = out.write(os.path.join(folder, f"llama_{name}.golden"))
    config.to_json_file(os.path.join(folder, f"llama_{name}.config.json"))

    show = lambda d: "  ".join(f"{k} {v:.1e}" for k, v in d.items())
    print(f"{name}: {size} bytes, loss {want[0]:.6f}, run {run[0][0]:.4f} -> {run[0][-1]:.4f}, norms {run[1][0]:.3f} .. {run[1][-1]:.3f}")
    print(f"  fp32 as shipped   {show(spread)}")
    print(f"  without {lacking}: {show(twin)}")
    assert size <= 300_000 and spread["loss"] < 1e-6 and spread["logits"] < 5e-6 and spread["grads"] < 2e-5
    assert spread["run_loss"] < 2e-5 and twin["grads"] > 1e-2


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for variant in VARIANTS:
        make(variant, sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__)))
