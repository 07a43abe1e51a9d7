#!/usr/bin/env python3
"""Held-out loss per byte of unigram and bigram tables: what a language model of bytes has to beat.

    bigram.py TEXT [--eval-split S] [--sequence-length T]

Split and windows are Tandem's: samples are windows of T+1 bytes with stride T; the last S * samples of them, in file
order, rounded to a whole sample and at least one, are held out, and the loss is the mean over their T targets each. Tables count the bytes of the training samples alone,
with add-one smoothing: unigram (n(b) + 1) / (N + 256); bigram (n(a, b) + 1) / (n(a) + 256). A second bigram estimate backs off
to the unigram instead, (n(a, b) + k u(b)) / (n(a) + k), with k chosen on the held-out text itself: the best that such a table
can do, so a bar that nobody can call lenient. Prints nats per byte, as JSON.
"""
import argparse
import json

import numpy as np


def held_out(samples: int, split: float) -> int:
    """How many of the last samples are held out."""
    return max(1, int(split * samples + 0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--eval-split", type=float, default=0.05)
    parser.add_argument("--sequence-length", type=int, default=256)
    args = parser.parse_args()

    data = np.fromfile(args.text, dtype=np.uint8)
    T = args.sequence_length
    samples = (len(data) - 1) // T
    first = (samples - held_out(samples, args.eval_split)) * T
    train, held = data[: first + 1], data[first : samples * T + 1]

    before, after = held[:-1], held[1:]
    counts = np.bincount(train.astype(np.int64), minlength=256)
    pairs = np.zeros((256, 256), np.int64)
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    row = pairs.sum(axis=1)
    unigram = (counts + 1) / (counts.sum() + 256)
    add_one = (pairs + 1) / (row + 256)[:, None]

    def loss_of(probability: np.ndarray) -> float:
        return float(-np.log(probability).mean())

    def backed_off(k: float) -> float:
        return loss_of((pairs[before, after] + k * unigram[after]) / (row[before] + k))

    strengths = [2.0**e for e in range(-4, 11)]
    best = min(strengths, key=backed_off)
    print(json.dumps({
        "text": args.text, "train_bytes": int(len(train)), "held_out_targets": int(len(after)),
        "unigram": loss_of(unigram[after]), "bigram_add_one": loss_of(add_one[before, after]),
        "bigram_backed_off": backed_off(best), "backed_off_k": best}, indent=1))


if __name__ == "__main__":
    main()
