#!/usr/bin/env python3
"""Held-out loss per byte of unigram and bigram tables: what a language model of bytes has to beat.

    bigram.py TEXT [--eval-split S] [--sequence-length T]

Split and windows are Tandem's: samples are windows of T+1 bytes with stride T; the last S * samples of them, in file
order, rounded to a whole sample and at least one, are held out, and the loss is the mean over their T targets each.
Tables count the bytes of the training samples alone, with add-one smoothing: unigram (n(b) + 1) / (N + 256); bigram
(n(a, b) + 1) / (n(a) + 256). A second bigram estimate backs off to the unigram instead, (n(a, b) + k u(b)) / (n(a) + k),
with k chosen on the held-out text itself: the best that such a table can do, so a bar that nobody can call lenient.
Prints nats per byte, as JSON.
"""
import argparse
import json
import math
from collections import Counter


def held_out(samples: int, split: float) -> int:
    """How many of the last samples are held out."""
    return max(1, int(split * samples + 0.5))


def bigram_losses(path: str, split: float, length: int) -> dict:
    """The losses of the module's description; `length` is T."""
    with open(path, "rb") as file:
        data = file.read()
    samples = (len(data) - 1) // length
    first = (samples - held_out(samples, split)) * length
    train, held = data[: first + 1], data[first : samples * length + 1]

    single, pairs, row = Counter(train), Counter(zip(train, train[1:])), Counter(train[:-1])
    targets = Counter(zip(held, held[1:]))
    unigram = [(single[b] + 1) / (len(train) + 256) for b in range(256)]

    def loss_of(probability) -> float:
        total = sum(count * -math.log(probability(a, b)) for (a, b), count in targets.items())
        return total / (len(held) - 1)

    def backed_off(k: float) -> float:
        return loss_of(lambda a, b: (pairs[a, b] + k * unigram[b]) / (row[a] + k))

    best = min((2.0**e for e in range(-4, 11)), key=backed_off)
    return {
        "train_bytes": len(train), "held_out_targets": len(held) - 1,
        "unigram": loss_of(lambda a, b: unigram[b]),
        "bigram_add_one": loss_of(lambda a, b: (pairs[a, b] + 1) / (row[a] + 256)),
        "bigram_backed_off": backed_off(best), "backed_off_k": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--eval-split", type=float, default=0.05)
    parser.add_argument("--sequence-length", type=int, default=128)
    args = parser.parse_args()
    losses = bigram_losses(args.text, args.eval_split, args.sequence_length)
    print(json.dumps({"text": args.text, **losses}, indent=1))


if __name__ == "__main__":
    main()
