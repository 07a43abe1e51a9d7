#!/usr/bin/env python3
"""The loss that transformers gives on a token file, for comparison with `tandem eval`. Prints JSON.

    check_eval.py MODEL DATA [--sequence-length T] [--max-tokens N] [--dtype bf16|fp32] [--expect LOSS --within SHARE]

DATA: llm.c's uint16 format. Windows of T+1 tokens with stride T, in file order; what is left at the end is not used; at most
N // T windows. The loss is the mean over all their T targets, each from fp32 logits, summed in double. With --expect the
status is 1 if the losses differ by more than SHARE of the expected one.
"""
import argparse
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def parser(description: str) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("model")
    result.add_argument("data")
    result.add_argument("--sequence-length", type=int, default=256)
    result.add_argument("--max-tokens", type=int, default=0, help="0 = all")
    result.add_argument("--dtype", choices=DTYPES, default="bf16")
    result.add_argument("--expect", type=float)
    result.add_argument("--within", type=float, default=0.005)
    return result


def windows_of(path: str, length: int, max_tokens: int) -> torch.Tensor:
    """[windows, length + 1]"""
    header = np.fromfile(path, np.int32, 256)
    assert header[0] == 20240520 and header[1] == 1, f"{path}: not llm.c's uint16 format"
    tokens = np.fromfile(path, np.uint16, offset=1024).astype(np.int64)
    assert len(tokens) == header[2]
    count = (len(tokens) - 1) // length
    if max_tokens:
        count = min(count, max(1, max_tokens // length))
    return torch.from_numpy(np.stack([tokens[i * length:i * length + length + 1] for i in range(count)]))


@torch.no_grad()
def mean_loss(model, windows: torch.Tensor, batch: int = 4) -> float:
    total = 0.0
    for part in windows.split(batch):
        logits = model(part[:, :-1]).logits.float()
        losses = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="none")
        total += losses.double().sum().item()
    return total / (windows.shape[0] * (windows.shape[1] - 1))


def report(args, model) -> None:
    """Prints the loss and exits with the status that --expect asks for."""
    windows = windows_of(args.data, args.sequence_length, args.max_tokens)
    loss = mean_loss(model.eval(), windows)
    out = dict(loss=loss, tokens=windows.shape[0] * args.sequence_length, sequences=windows.shape[0],
               sequence_length=args.sequence_length, dtype=args.dtype, model=args.model)
    within = True
    if args.expect is not None:
        out["difference"] = abs(loss - args.expect) / args.expect
        within = out["difference"] <= args.within
    print(json.dumps(out))
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    report(arguments, AutoModelForCausalLM.from_pretrained(arguments.model, dtype=DTYPES[arguments.dtype]))
