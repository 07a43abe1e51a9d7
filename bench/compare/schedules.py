#!/usr/bin/env python3
"""What a delayed update costs in loss: `synchronous`, `delayed` and `delayed` with prediction, at several seeds.

    schedules.py [--config CONFIG] [--seeds 1,2,3] [--set KEY=VALUE ...] [--runs FOLDER] [--out NAME]

Trains CONFIG (default: the quickstart) once per schedule and seed, by the real program (build/release/tandem, or $TANDEM),
and writes NAME.md and NAME.json (default: bench/results/schedules). Runs that have finished are kept in FOLDER, under a
hash of the config and the settings, so starting again goes on with what is missing. The seed gives initial weights and the
order of the data; what is held out is the same text in every run. Needs Python's standard library alone.
"""
import argparse
import hashlib
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys

from bigram import bigram_losses

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
OFFLOAD = "zero_optimization.offload_optimizer."
SCHEDULES = {  # name: settings
    "synchronous": {"schedule": "synchronous"},
    "delayed": {"schedule": "delayed", "correction": "none"},
    "delayed+predict": {"schedule": "delayed", "correction": "predict"},
}
BASELINE = "synchronous"
LAST = 20  # steps whose mean is the final training loss


def run_command(config: str, schedule: str, seed: int, settings: list, folder: str) -> list:
    own = [f"{OFFLOAD}{key}={value}" for key, value in SCHEDULES[schedule].items()]
    flags = [flag for setting in settings + own + [f"train.seed={seed}", f"output_dir={folder}"] for flag in ("--set", setting)]
    return ["train", config, *flags]


def metrics_of(folder: str) -> list:
    path = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def finished(folder: str) -> bool:
    """The last line of a run that trained to its end with held-out text is an evaluation."""
    lines = metrics_of(folder)
    return bool(lines) and lines[-1].get("eval", False) and lines[-1]["step"] == resolved(folder)["train"]["steps"]


def resolved(folder: str) -> dict:
    with open(os.path.join(folder, "config.resolved.json")) as file:
        return json.load(file)


def train(command: list, folder: str) -> None:
    if finished(folder):
        return
    print("tandem " + shlex.join(command), file=sys.stderr)
    program = os.environ.get("TANDEM", os.path.join(ROOT, "build/release/tandem"))
    # A run that was stopped goes on from its checkpoint, or from the start where it has none.
    subprocess.run([program, *command, "--quiet", "--resume", "auto"], check=True, stdout=subprocess.DEVNULL)


def row_of(schedule: str, seed: int, command: list, folder: str) -> dict:
    lines = metrics_of(folder)
    steps = [line for line in lines if not line.get("eval")]
    return {
        "schedule": schedule, "seed": seed, "steps": len(steps), "delayed_steps": sum(s["version_lag"] for s in steps),
        "train_loss": statistics.fmean(s["loss"] for s in steps[-LAST:]), "held_out_loss": lines[-1]["eval_loss"],
        "command": "tandem " + shlex.join(command)}


def spread(values: list) -> str:
    """Mean and sample standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.4f} ± {deviation:.4f}"


def differences(rows: list, schedule: str, key: str) -> list:
    """Per seed, what the schedule ends above the baseline."""
    base = {row["seed"]: row[key] for row in rows if row["schedule"] == BASELINE}
    return [row[key] - base[row["seed"]] for row in rows if row["schedule"] == schedule]


def table(rows: list, seeds: list, key: str) -> list:
    out = ["| schedule | " + " | ".join(f"seed {seed}" for seed in seeds) + f" | mean ± s.d. | above {BASELINE}, seed by seed |",
           "|---" * (len(seeds) + 3) + "|"]
    for schedule in SCHEDULES:
        values = [row[key] for row in rows if row["schedule"] == schedule]
        above = "" if schedule == BASELINE else spread(differences(rows, schedule, key))
        out.append(f"| `{schedule}` | " + " | ".join(f"{value:.4f}" for value in values) + f" | {spread(values)} | {above} |")
    return out


def reading(rows: list) -> str:
    cost = {s: statistics.fmean(differences(rows, s, "held_out_loss")) for s in SCHEDULES if s != BASELINE}
    text = ", ".join(f"`{s}` {abs(c):.3f} nats {'above' if c > 0 else 'below'} it" for s, c in cost.items())
    text = f"Held-out loss against `{BASELINE}` at the same seeds: {text}."
    if cost["delayed"] > 0:
        text += f" Prediction takes back {1 - cost['delayed+predict'] / cost['delayed']:.0%} of what the delay costs here."
    return text


def machine() -> str:
    model = platform.machine()
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    return f"{len(os.sched_getaffinity(0))} cores of {model}, host device"


def bar_of(config: dict) -> dict:
    data = config["data"]
    if data["format"] != "bytes" or len(data["train"]) != 1 or data["eval"]:
        return {}
    return bigram_losses(data["train"][0], data["eval_split"], data["sequence_length"])


def page(result: dict, seeds: list) -> str:
    rows, config, bar = result["rows"], result["config"], result["bigram"]
    adam = config["optimizer"]["params"]
    tokens = config["train_batch_size"] * config["data"]["sequence_length"]
    lines = [
        "# Schedules: what a delayed update costs in loss", "",
        f"Command: `{result['command']}`; machine: {result['machine']}.",
        f"{config['train']['steps']} steps of {tokens} tokens, lr {adam['lr']}; in `delayed`, "
        f"{rows[-1]['delayed_steps']} of them read weights that are one update old.", "",
        reading(rows), "", "Held-out loss, nats per token:", "", *table(rows, seeds, "held_out_loss"), "",
        f"Training loss, mean of the last {LAST} steps:", "", *table(rows, seeds, "train_loss")]
    if bar:
        lines += ["", f"For scale: a bigram table of the same training text reaches {bar['bigram_backed_off']:.4f} on the held-out "
                      f"text (`bench/compare/bigram.py`)."]
    lines += ["", "The runs' own commands stand in the JSON file beside this page. Losses do not depend on the speed of the machine;"
                  " times are not compared here."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/quickstart.json", help="relative to the repository")
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", default="runs/schedules", help="relative to the repository")
    parser.add_argument("--out", default="bench/results/schedules", help="relative to the repository")
    args = parser.parse_args()
    command = shlex.join(["bench/compare/schedules.py", *sys.argv[1:]])
    os.chdir(ROOT)

    with open(args.config) as file:
        kept_under = hashlib.sha256(json.dumps([file.read(), args.set]).encode()).hexdigest()[:8]
    rows = []
    for seed in args.seeds:
        for schedule in SCHEDULES:
            folder = f"{args.runs}/{kept_under}/{schedule}-seed-{seed}"
            run = run_command(args.config, schedule, seed, args.set, folder)
            train(run, folder)
            rows.append(row_of(schedule, seed, run, folder))

    config = resolved(folder)
    result = {"command": command, "machine": machine(), "config": config, "bigram": bar_of(config), "rows": rows}
    text = page(result, args.seeds)
    # The page is of a config, not of where it lay.
    del config["output_dir"], config["data"]["train"], config["data"]["eval"]
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out + ".json", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    with open(args.out + ".md", "w") as file:
        file.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
