#!/usr/bin/env python3
"""A training step of a Tandem config's model in PyTorch eager on the CPU: forward, backward, clip, AdamW, in fp32.

    torch_cpu.py CONFIG [--threads 2] [--warmup 2] [--steps 5]

Model (`model.config`), batch, sequence length and optimizer come from the config; the model is transformers' LlamaForCausalLM with
PyTorch's fused attention (sdpa) and the fused AdamW, the faster choices. Tokens are random. Prints JSON with every step's
milliseconds, their median, and the median of the processor time over all threads.
"""
import argparse
import json
import re
import statistics
import time

import torch
import torch.nn.functional as F
import transformers
from transformers import LlamaConfig, LlamaForCausalLM


def read_config(path: str) -> dict:
    """JSON with // comments on lines of their own."""
    return json.loads(re.sub(r"^\s*//.*$", "", open(path).read(), flags=re.MULTILINE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)

    config = read_config(args.config)
    shape = {k: v for k, v in config["model"]["config"].items() if k not in ("model_type", "architectures")}
    model = LlamaForCausalLM(LlamaConfig(**shape, use_cache=False, attn_implementation="sdpa"))
    adam = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=adam["lr"], betas=adam["betas"], weight_decay=adam["weight_decay"],
                                  fused=True)
    batch, length = config["train_micro_batch_size_per_gpu"], config["data"]["sequence_length"]

    def step() -> tuple[float, float]:
        window = torch.randint(0, shape["vocab_size"], (batch, length + 1))
        begin, cpu = time.perf_counter(), time.process_time()
        logits = model(window[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        return 1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - cpu)

    for _ in range(args.warmup):
        step()
    times, cpu_times = zip(*(step() for _ in range(args.steps)))
    median = statistics.median(times)
    print(json.dumps(dict(
        program="pytorch", torch=torch.__version__, transformers=transformers.__version__, threads=torch.get_num_threads(),
        parameters=sum(p.numel() for p in model.parameters()), tokens=batch * length, step_ms=[round(t, 1) for t in times],
        median_ms=round(median, 1), median_cpu_ms=round(statistics.median(cpu_times), 1), tokens_per_s=round(1e3 * batch * length / median, 1))))


if __name__ == "__main__":
    main()
