#!/usr/bin/env python3
"""The largest model under one limit of device memory: optimizer on the device, offloaded, and with streamed weights.

    largest_model.py [--limit 192MiB] [--layers-cap 384] [--steps 3] [--runs FOLDER] [--out NAME]

The models are Llama-shaped and differ in their number of layers alone. The most layers that fit are found by `tandem plan`; then
that model is really trained for --steps steps under the limit, by `tandem train` (build/release/tandem, or $TANDEM) on the host
device, and one layer more is refused. Held against the plan: bytes that the allocators counted, to the byte; peak resident memory
of the process against the banner's sum. Streamed, nothing on the device grows with the layers: --layers-cap ends the search.
Also: bytes that the host holds per parameter in every format, from the plan of a 7-billion model. Runs that have finished are kept in
FOLDER (default: runs/largest), so starting again goes on with what is missing. Writes NAME.md and NAME.json (default:
bench/results/largest). Needs Python's standard library alone.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import report
from report import ROOT

OFFLOAD, PARAM = "zero_optimization.offload_optimizer", "zero_optimization.offload_param"
KINDS = {
    "optimizer on the device": [],
    "offloaded": [f"{OFFLOAD}={{}}"],
    "offloaded, weights streamed": [f"{OFFLOAD}={{}}", f"{PARAM}={{}}"],
}
SMALL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 256, "hidden_size": 256, "intermediate_size": 704,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": True}
SEVEN = {**SMALL, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
         "num_key_value_heads": 32, "num_hidden_layers": 32, "tie_word_embeddings": False}
# Masters, moments, and the design's bytes per parameter in `exact` and `delayed`, correction `none`.
FORMATS = {"A": ("fp32", "fp32", 14, 16), "B": ("split", "fp32", 14, 14), "C": ("fp32", "bf16", 10, 12),
           "D": ("split", "bf16", 10, 10), "E": ("fp32", "int8", 8.125, 10.125), "F": ("ulp8", "int8", 7.125, 7.125)}


def config_of(model: dict, layers: int, folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "config.json")
    with open(path, "w") as file:
        json.dump({
            "output_dir": os.path.join(folder, "run"), "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
            "optimizer": {"params": {"lr": 1e-4}}, "model": {"config": {**model, "num_hidden_layers": layers}},
            "data": {"train": os.path.join(ROOT, "configs/sample/kjv_genesis_to_2samuel.txt"), "format": "bytes",
                     "sequence_length": 128},
            "train": {"steps": 100}, "checkpoint": {"states": False}, "device": {"kind": "host"}}, file)
    return path


def tandem(command: list) -> tuple:
    """Status, stdout, stderr and the process's peak resident bytes."""
    program = os.environ.get("TANDEM", os.path.join(ROOT, "build/release/tandem"))
    errors = os.path.join(ROOT, "runs", "largest.err")
    with open(errors, "w+") as err:
        child = subprocess.Popen([program, *command], stdout=subprocess.PIPE, stderr=err, text=True)
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        said = err.read()
    os.remove(errors)
    return child.returncode, out, said, usage.ru_maxrss * 1024


def flags(settings: list) -> list:
    return [flag for setting in settings for flag in ("--set", setting)]


def plan(model: dict, layers: int, settings: list, runs: str) -> dict:
    path = config_of(model, layers, os.path.join(runs, "plan"))
    status, out, said, _ = tandem(["plan", path, "--json", *flags(settings)])
    if status not in (0, 3):
        sys.exit(said)
    return json.loads(out)


def most_layers(settings: list, cap: int, runs: str) -> int:
    """0: not even one layer fits."""
    fits = lambda layers: plan(SMALL, layers, settings, runs)["tiers"]["device"]["need_bytes"] <= limit_of(settings)
    low, high = 0, 1
    while high <= cap and fits(high):
        low, high = high, 2 * high
    high = min(high, cap + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def limit_of(settings: list) -> int:
    text = next(s.split("=")[1] for s in settings if s.startswith("device.memory_limit"))
    return int(text.removesuffix("MiB")) * 2**20


def banner_bytes(said: str) -> int:
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    found = [re.search(pattern + r"\s+([\d.]+) (B|[KMG]iB)", said) for pattern in (r"memory\s+device", r"\n\s+host", r"\n\s+fixed")]
    return int(sum(float(match[1]) * units[match[2]] for match in found))


def trained(kind: str, layers: int, settings: list, steps: int, runs: str) -> dict:
    folder = os.path.join(runs, re.sub(r"\W+", "-", kind) + f"-{layers}")
    kept = os.path.join(folder, "result.json")
    if os.path.exists(kept):
        with open(kept) as file:
            return json.load(file)
    tiers = plan(SMALL, layers, settings, runs)["tiers"]
    path = config_of(SMALL, layers, folder)
    shutil.rmtree(os.path.join(folder, "run"), ignore_errors=True)
    command = ["train", path, "--max-steps", str(steps), *flags(settings)]
    status, _, said, resident = tandem(command)
    if status != 0:
        sys.exit(said)
    with open(os.path.join(folder, "run/metrics.jsonl")) as file:
        last = [json.loads(line) for line in file][steps - 1]
    counted = {"device": last["device_peak_bytes"], "pinned": last["pinned_bytes"], "host": last["host_bytes"]}
    more = config_of(SMALL, layers + 1, os.path.join(runs, "plan"))
    refused = tandem(["train", more, "--dry-run", *flags(settings)])
    result = {
        "kind": kind, "layers": layers, "loss": last["loss"], "counted": counted,
        "planned": {tier: tiers[tier]["need_bytes"] for tier in counted}, "resident": resident, "banner": banner_bytes(said),
        "parameters": int(re.search(r"(\d+) parameters", said)[1]),
        "one_layer_more": {"status": refused[0], "hint": refused[2].strip().split("try: ")[-1] if refused[0] else ""}}
    shutil.rmtree(os.path.join(folder, "run"))
    with open(kept, "w") as file:
        json.dump(result, file)
    return result


def held(runs: str) -> list:
    rows = []
    for name, (master, moment, *designed) in FORMATS.items():
        row = {"layout": name, "master": master, "moment": moment, "designed": designed, "held": []}
        for schedule in ("exact", "delayed"):
            settings = [f"{OFFLOAD}.{key}={value}" for key, value in
                        {"ratio": 1, "schedule": schedule, "correction": "none", "master_format": master, "moment_format": moment}.items()]
            said = plan(SEVEN, 32, settings, runs)
            scopes = said["tiers"]["host"]["scopes"]
            row["held"].append(sum(scopes[scope] for scope in ("master", "exp_avg", "exp_avg_sq", "slots")) / parameters(SEVEN))
        rows.append(row)
    return rows


def parameters(m: dict) -> int:
    h, i, kv = m["hidden_size"], m["intermediate_size"], m["hidden_size"] * m["num_key_value_heads"] // m["num_attention_heads"]
    layer = 2 * h * h + 2 * kv * h + 3 * i * h + 2 * h
    return m["num_hidden_layers"] * layer + (1 if m["tie_word_embeddings"] else 2) * m["vocab_size"] * h + h


def page(result: dict, cap: int) -> str:
    mib = lambda count: f"{count / 2**20:.2f}"
    runs = result["runs"]
    lines = [
        "# The largest model under one limit of device memory", "",
        f"Command: `{result['command']}`; machine: {result['machine']}, host device.",
        f"Llama-shaped models (hidden 256, bf16, one sequence of 128 tokens) with {result['limit']} of device memory; activations as `auto` has it.", "",
        "| | layers | parameters | times | device bytes, counted = planned | pinned | host | peak resident / banner | one layer more |", "|---" * 9 + "|"]
    for run in runs:
        same = {tier: "= plan" if run["counted"][tier] == run["planned"][tier] else f"plan {run['planned'][tier]}" for tier in run["counted"]}
        more = f"status {run['one_layer_more']['status']}" if run["layers"] < cap else "fits, too"
        lines.append(
            f"| {run['kind']} | {run['layers']} | {run['parameters']} | {run['parameters'] / runs[0]['parameters']:.1f} "
            + "".join(f"| {run['counted'][tier]} {same[tier]} " for tier in ("device", "pinned", "host"))
            + f"| {mib(run['resident'])} / {mib(run['banner'])} MiB = {run['resident'] / run['banner']:.3f} | {more} |")
    lines += ["", f"Streamed, the device holds a window of three layers whatever the model; the search ended at {cap} layers, and the RAM ends it in earnest.",
              "", "Bytes that the host holds per parameter (masters, moments, slots) of a Llama of 6.7 billion, all of the optimizer on the host, correction `none`:", "",
              "| layout | masters + moments | `exact` | meant | `delayed` | meant |", "|---" * 6 + "|"]
    for row in result["held"]:
        (exact, delayed), (want_exact, want_delayed) = row["held"], row["designed"]
        lines.append(f"| {row['layout']} | `{row['master']}+{row['moment']}` | {exact:.3f} | {want_exact} | {delayed:.3f} | {want_delayed} |")
    lines += ["", "With `predict`, and with streamed weights, `split` and `ulp8` hold two bytes more in `delayed`: there the upper half of a master has a plane of"
              " its own."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", default="192MiB")
    parser.add_argument("--layers-cap", type=int, default=384)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--runs", default="runs/largest", help="relative to the repository")
    parser.add_argument("--out", default="bench/results/largest", help="relative to the repository")
    args = parser.parse_args()
    command = shlex.join(["bench/compare/largest_model.py", *sys.argv[1:]])
    os.chdir(ROOT)
    os.makedirs("runs", exist_ok=True)
    rows = []
    for kind, own in KINDS.items():
        settings = [*own, f"device.memory_limit={args.limit}"]
        layers = most_layers(settings, args.layers_cap, args.runs)
        rows.append(trained(kind, layers, settings, args.steps, args.runs))
    result = {"command": command, "machine": report.machine(), "limit": args.limit, "runs": rows, "held": held(args.runs)}
    report.write(args.out, result, page(result, args.layers_cap))


if __name__ == "__main__":
    main()
