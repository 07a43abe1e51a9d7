"""DeepSpeed's or PyTorch's optimizer step on the CPU, pass by pass; adam_peers.py starts it, by the peers' own Python.

    adam_peers_worker.py deepspeed|torch PARAMETERS

Prints a line of JSON about itself, then for each line of stdin makes one step and prints its passes' seconds. Threads come from
OMP_NUM_THREADS. From bf16 gradients to bf16 weights, with masters and moments in fp32:

convert   the gradient into the fp32 buffer that the optimizer reads
unscale   (deepspeed) that buffer times 1 / (loss scale * clip)
step      the optimizer
cast      the masters into the 16-bit weights
"""
import json
import os
import sys
import time

import torch

SETTINGS = dict(lr=1e-7, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)


def make_optimizer(name: str, master: torch.nn.Parameter) -> tuple:
    if name == "torch":
        return torch.optim.AdamW([master], **SETTINGS, fused=True), {"torch": torch.__version__}
    import deepspeed  # builds its CPU Adam when it is first asked for
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam([master], **SETTINGS), {"deepspeed": deepspeed.__version__, "torch": torch.__version__}


def main() -> None:
    name, n = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")  # what the libraries print goes to stderr
    os.dup2(2, 1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    master = torch.nn.Parameter(torch.randn(n).mul_(0.1))
    master.grad = torch.zeros(n)
    weight = master.detach().to(torch.bfloat16)
    gradient = torch.randn(n).mul_(1e-3).to(torch.bfloat16)
    scale = torch.tensor(1.0)  # of a norm below the limit: the pass is made all the same
    optimizer, versions = make_optimizer(name, master)
    passes = {"convert": lambda: master.grad.copy_(gradient)}
    if name == "deepspeed":
        passes["unscale"] = lambda: master.grad.mul_(1.0 / scale)
    passes["step"] = optimizer.step
    passes["cast"] = lambda: weight.copy_(master)

    def step() -> dict:
        seconds = {}
        for key, work in passes.items():
            begin = time.perf_counter()
            work()
            seconds[key] = time.perf_counter() - begin
        return seconds

    def answer(what: dict) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    with torch.no_grad():
        step()  # makes the states
        answer(dict(versions=versions, parameters=n, threads=torch.get_num_threads()))
        for _ in sys.stdin:
            answer(step())


if __name__ == "__main__":
    main()
