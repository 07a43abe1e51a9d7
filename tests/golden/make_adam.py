#!/usr/bin/env python3
"""How far PyTorch's Adam in fp32 is from double precision after 1000 steps: adam_trajectory.json.

    python3 -m venv V && V/bin/pip install -r tests/golden/requirements.txt && V/bin/python tests/golden/make_adam.py [FOLDER]

Start and gradients are formulas (formula.py), exact in fp32, so that another program runs the same. Element i of N starts at
`start` * uniform("start", i); its gradient at step t = 1, 2 ... is, in fp32,

    2^-(i // 32) * (uniform("gradient.T", i) + 0.25 * uniform("drift", i)),   T: t in decimal

so from 1 down to 2^-31, below eps, alike in size within 32 neighbours. Per case the file has the settings; `torch_error`, the
relative L2 error of p against the double trajectory, of the fused implementation and of the plain loop; and, to show that
another program's double trajectory is the same, `checks`: the L2 norm of p, and the sums of p, m and v, each element times
uniform("check", i).
"""
import json
import math
import os
import sys

import numpy as np
import torch

from formula import uniform

N, STEPS = 1024, 1000
# decay: decoupled is AdamW's, l2 that of torch.optim.Adam; the latter so small that it is the larger part of the gradient for
# some of the elements alone: those go to 0 and around it.
CASES = [
    dict(name="decoupled", decay="decoupled", lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, start=1.0),
    dict(name="none", decay="none", lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, start=1.0),
    dict(name="l2", decay="l2", lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=1e-6, start=1.0),
    dict(name="from_zero", decay="decoupled", lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, start=0.0),
    dict(name="small_steps", decay="none", lr=2e-6, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, start=1.0),
]


def start_of(case: dict) -> np.ndarray:
    return np.float32(case["start"]) * uniform("start", N)


def gradient(t: int, drift: np.ndarray, size: np.ndarray) -> np.ndarray:
    return size * (uniform(f"gradient.{t}", N) + np.float32(0.25) * drift)


def gradients() -> np.ndarray:
    """[STEPS, N]"""
    drift, size = uniform("drift", N), np.ldexp(np.float32(1), -(np.arange(N) // 32))
    return np.stack([gradient(t, drift, size) for t in range(1, STEPS + 1)])


def double_trajectory(case: dict, grads: np.ndarray) -> tuple:
    """p, m, v at the end (Kingma & Ba 2015; Loshchilov & Hutter 2019)."""
    lr, b1, b2, wd = case["lr"], case["beta1"], case["beta2"], case["weight_decay"]
    p, m, v = start_of(case).astype(np.float64), np.zeros(N), np.zeros(N)
    for t, g in enumerate(grads.astype(np.float64), 1):
        if case["decay"] == "l2":
            g = g + wd * p
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        if case["decay"] == "decoupled":
            p = p - lr * wd * p
        p = p - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + case["eps"])
    return p, m, v


def torch_trajectory(case: dict, grads: np.ndarray, fused: bool) -> np.ndarray:
    p = torch.nn.Parameter(torch.from_numpy(start_of(case).copy()))
    kind = torch.optim.Adam if case["decay"] == "l2" else torch.optim.AdamW
    adam = kind([p], lr=case["lr"], betas=(case["beta1"], case["beta2"]), eps=case["eps"],
                weight_decay=case["weight_decay"], fused=fused, foreach=False)
    for g in torch.from_numpy(grads):
        p.grad = g.clone()
        adam.step()
    return p.detach().numpy().astype(np.float64)


def entry(case: dict, grads: np.ndarray) -> dict:
    p, m, v = double_trajectory(case, grads)
    norm, check = np.linalg.norm(p), uniform("check", N).astype(np.float64)
    error = {name: float(np.linalg.norm(torch_trajectory(case, grads, name == "fused") - p) / norm)
             for name in ("fused", "loop")}
    checks = {"norm": float(norm)} | {name: math.fsum(x * check) for name, x in (("p", p), ("m", m), ("v", v))}
    return case | dict(torch_error=error, checks=checks)


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    grads = gradients()
    out = dict(torch=torch.__version__, elements=N, steps=STEPS, cases=[entry(case, grads) for case in CASES])
    with open(os.path.join(folder, "adam_trajectory.json"), "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
