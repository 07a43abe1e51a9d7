#!/usr/bin/env python3
"""How far transformers itself is from the goldens in each dtype, for a reader who asks whether a tolerance is sane.

    python3 -m venv V && V/bin/pip install -r tests/golden/requirements.txt && V/bin/python tests/golden/spread.py

The goldens come from transformers in double. Here the same models run as shipped in fp32, bf16 and fp16 (weights, activations
and gradients), the loss from fp32 logits. Per variant: relative error of the loss, of the worst row of logits, of the worst
parameter's gradient; in fp32 also of the 20-step run, of its losses, norms and of the final weights over how far they moved.
The last lines are the worst of all variants, from which parity_model_test.cpp and parity_run_test.cpp of tests/offload take
their bounds.
"""
import numpy as np
import torch
import torch.nn.functional as F

import formula
import make_families
import make_llama

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def makers() -> dict:
    """Variant: its model in a dtype."""
    result = {name: lambda dtype, v=variant: make_families.model_of(v, dtype) for name, variant in make_families.VARIANTS.items()}
    for name, (head_dim, tied, rope, _) in make_llama.VARIANTS.items():
        config = make_llama.config_of(head_dim, tied, rope)
        result["llama_" + name] = lambda dtype, c=config: make_llama.model_of(c, dtype).eval()
    return dict(sorted(result.items()))


def cast(model, dtype: torch.dtype):
    """The parameters alone, as from_pretrained does: rotary frequencies stay fp32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def loss_and_logits(model, step: int):
    window = torch.from_numpy(formula.batch(step, make_llama.B, make_llama.T))
    logits = model(window[:, :-1]).logits.reshape(-1, make_llama.VOCAB)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide, window[:, 1:].reshape(-1)), logits


def moved(name: str, weights: np.ndarray, shape: tuple) -> np.ndarray:
    """How far a parameter went. The bias of GPT-2's keys has gradient zero (all scores of a query shift alike), so that Adam
    moves it by rounding alone: it is left out, there as in the tests."""
    delta = weights - formula.weight(name, shape).reshape(-1)
    return np.delete(delta, np.s_[delta.size // 3:2 * delta.size // 3]) if name.endswith("c_attn.bias") else delta


def spread_of_run(single, double, shapes: dict) -> dict:
    far = lambda a, b: max(abs(x - y) / y for x, y in zip(a, b))
    return dict(run_loss=far(single[0], double[0]), run_norm=far(single[1], double[1]),
                run_weights=max(make_llama.apart(moved(n, single[2][n], s), moved(n, double[2][n], s)) for n, s in shapes.items()))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make_llama.loss_and_logits = loss_and_logits
    worst = {dtype: {} for dtype in DTYPES}
    for name, make in makers().items():
        double = make(torch.float64)
        shapes = {n: tuple(p.shape) for n, p in double.named_parameters()}
        want, run = make_llama.first_step(double), make_llama.training_run(double)
        for dtype, kind in DTYPES.items():
            model = cast(make(torch.float32), kind)
            spread = make_llama.distances(make_llama.first_step(model), want)
            if dtype == "fp32":
                spread |= spread_of_run(make_llama.training_run(model), run, shapes)
            worst[dtype] = {k: max(v, worst[dtype].get(k, 0)) for k, v in spread.items()}
            print(f"{name:15} {dtype}  " + "  ".join(f"{k} {v:.1e}" for k, v in spread.items()), flush=True)
    for dtype, spread in worst.items():
        print(f"{'worst':15} {dtype}  " + "  ".join(f"{k} {v:.1e}" for k, v in spread.items()))


if __name__ == "__main__":
    main()
