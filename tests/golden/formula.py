"""Weights and tokens of the goldens as formulas, so that only results are stored. tests/offload/golden_weights.h says the same
in C++, and a test compares the two bit for bit."""
import numpy as np

TOKENS = 250  # ids below this; the models' vocab is padded to 256


def mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser, on uint64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fnv1a(text: str) -> np.uint64:
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return np.uint64(h)


def hashes(name: str, count: int) -> np.ndarray:
    """Elements 0 .. count-1 of the stream `name`: mix(fnv1a(name) + i)."""
    with np.errstate(over="ignore"):
        return mix(fnv1a(name) + np.arange(count, dtype=np.uint64))


def uniform(name: str, count: int) -> np.ndarray:
    """fp32 in (-1, 1): (2k + 1 - 2^24) / 2^24, k the hash's upper 24 bits; exact."""
    k = (hashes(name, count) >> np.uint64(40)).astype(np.int64)
    return ((2 * k + 1 - 2**24).astype(np.float64) / 2**24).astype(np.float32)


def weight(name: str, shape: tuple) -> np.ndarray:
    """A parameter, in fp32: matrices and biases 0.25 u (attention far from uniform, logits of about 1); norms 1 + 0.1 u."""
    u = uniform(name, int(np.prod(shape)))
    value = np.float32(0.25) * u if len(shape) >= 2 or name.endswith(".bias") else np.float32(1) + np.float32(0.1) * u
    return value.reshape(shape)


def batch(step: int, batch_size: int, length: int) -> np.ndarray:
    """Windows of length + 1 tokens, [batch_size, length + 1]. The product of two uniform ids / 250, so small ids are more
    frequent and there is something to learn."""
    r = hashes(f"batch.{step}", batch_size * (length + 1)) >> np.uint64(33)
    n = np.uint64(TOKENS)
    ids = (r % n) * ((r // n) % n) // n
    return ids.astype(np.int64).reshape(batch_size, length + 1)
