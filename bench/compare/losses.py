#!/usr/bin/env python3
"""What a setting costs in loss, at several seeds.

    losses.py schedules|states [--config CONFIG] [--variants A,B] [--seeds 1,2,3] [--set KEY=VALUE ...] [--runs FOLDER]
              [--out NAME]
    losses.py schedules|states --redraw NAME

schedules: `exact`, `delayed`, and `delayed` with predictions by several factors; states: formats of masters and moments.
Trains CONFIG (default: the quickstart) once per variant (default: all) and seed, by the real program
(build/release/tandem, or $TANDEM), and writes NAME.md, NAME.svg and NAME.json (default: bench/results/schedules or states).
Runs that have finished are kept in FOLDER (default: runs/losses), under a hash of the config and the settings, so starting
again goes on with what is missing. The seed gives initial weights and the order of the data; what is held out is the same
text in every run. --redraw makes page and picture of an earlier NAME.json again. Needs Python's standard library alone.
"""
import argparse
import dataclasses
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import sys

import report
from bigram import bigram_losses
from loss_picture import picture
from report import ROOT

OFFLOAD = "zero_optimization.offload_optimizer."
LAST = 20  # steps whose mean is the final training loss


@dataclasses.dataclass
class Comparison:
    title: str
    column: str
    baseline: str
    variants: dict  # name: settings under OFFLOAD


COMPARISONS = {
    "schedules": Comparison("Schedules: what a delayed update costs in loss", "schedule", "exact", {
        "exact": {"schedule": "exact"},
        "delayed": {"schedule": "delayed", "correction": "none"},
        **{f"predict-{factor}": {"schedule": "delayed", "correction": "predict", "prediction": factor} for factor in (1, 1.5, 2)},
    }),
    "states": Comparison("Formats of optimizer states: what they cost in loss", "masters + moments", "fp32+fp32", {
        f"{masters}+{moments}": {"schedule": "synchronous", "master_format": masters, "moment_format": moments}
        for masters, moments in (("fp32", "fp32"), ("split", "fp32"), ("fp32", "bf16"), ("split", "bf16"),
                                 ("fp32", "int8"), ("ulp8", "int8"))
    }),
}


def run_command(config: str, variant: dict, seed: int, settings: list, folder: str) -> list:
    own = [f"{OFFLOAD}{key}={value}" for key, value in variant.items()]
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


def row_of(variant: str, seed: int, command: list, folder: str) -> dict:
    lines = metrics_of(folder)
    steps = [line for line in lines if not line.get("eval")]
    return {
        "variant": variant, "seed": seed, "steps": len(steps), "delayed_steps": sum(s["version_lag"] for s in steps),
        "train_loss": statistics.fmean(s["loss"] for s in steps[-LAST:]), "held_out_loss": lines[-1]["eval_loss"],
        "command": "tandem " + shlex.join(command)}


def spread(values: list) -> str:
    """Mean and sample standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.4f} ± {deviation:.4f}"


def differences(comparison: Comparison, rows: list, variant: str, key: str) -> list:
    """Per seed, what the variant ends above the baseline."""
    base = {row["seed"]: row[key] for row in rows if row["variant"] == comparison.baseline}
    return [row[key] - base[row["seed"]] for row in rows if row["variant"] == variant]


def table(comparison: Comparison, rows: list, seeds: list, key: str) -> list:
    out = [f"| {comparison.column} | " + " | ".join(f"seed {seed}" for seed in seeds)
           + f" | mean ± s.d. | above {comparison.baseline}, seed by seed |", "|---" * (len(seeds) + 3) + "|"]
    for variant in comparison.variants:
        values = [row[key] for row in rows if row["variant"] == variant]
        above = "" if variant == comparison.baseline else spread(differences(comparison, rows, variant, key))
        out.append(f"| `{variant}` | " + " | ".join(f"{value:.4f}" for value in values) + f" | {spread(values)} | {above} |")
    return out


def reading(comparison: Comparison, rows: list) -> str:
    cost = {v: statistics.fmean(differences(comparison, rows, v, "held_out_loss"))
            for v in comparison.variants if v != comparison.baseline}
    text = ", ".join(f"`{v}` {abs(c):.4f} nats {'above' if c > 0 else 'below'} it" for v, c in cost.items())
    text = f"Held-out loss against `{comparison.baseline}` at the same seeds: {text}."
    back = {v: 1 - c / cost["delayed"] for v, c in cost.items() if v.startswith("predict-") and cost.get("delayed", 0) > 0}
    if back:
        text += " Of what the delay costs here, " + ", ".join(f"`{v}` takes back {share:.0%}" for v, share in back.items()) + "."
    return text


def bar_of(config: dict) -> dict:
    data = config["data"]
    if data["format"] != "bytes" or len(data["train"]) != 1 or data["eval"]:
        return {}
    return bigram_losses(data["train"][0], data["eval_split"], data["sequence_length"])


def page(comparison: Comparison, result: dict, image: str) -> str:
    rows, config, bar = result["rows"], result["config"], result["bigram"]
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    adam = config["optimizer"]["params"]
    tokens = config["train_batch_size"] * config["data"]["sequence_length"]
    late = max(row["delayed_steps"] for row in rows)
    lines = [
        f"# {comparison.title}", "",
        f"Command: `{result['command']}`; machine: {result['machine']}.",
        f"{config['train']['steps']} steps of {tokens} tokens, lr {adam['lr']}"
        + (f"; in `delayed`, {late} of them read weights that are one update old." if late else "."), "",
        reading(comparison, rows), "", f"![what each costs, seed by seed]({image})", "", "Held-out loss, nats per token:", "",
        *table(comparison, rows, seeds, "held_out_loss"), "",
        f"Training loss, mean of the last {LAST} steps:", "", *table(comparison, rows, seeds, "train_loss")]
    if bar:
        lines += ["", f"For scale: a bigram table of the same training text reaches {bar['bigram_backed_off']:.4f} on the held-out "
                      f"text (`bench/compare/bigram.py`)."]
    lines += ["", "The runs' own commands stand in the JSON file beside this page. Losses do not depend on the speed of the machine;"
                  " times are not compared here."]
    return "\n".join(lines) + "\n"


def variants_of(comparison: Comparison, names: list) -> Comparison:
    return dataclasses.replace(comparison, variants={name: comparison.variants[name] for name in names})


def write(comparison: Comparison, out: str, result: dict) -> None:
    rows = result["rows"]
    costs = {variant: dict(zip((row["seed"] for row in rows if row["variant"] == variant),
                               differences(comparison, rows, variant, "held_out_loss")))
             for variant in comparison.variants if variant != comparison.baseline}
    report.write(out, result, page(comparison, result, os.path.basename(out) + ".svg"))
    with open(out + ".svg", "w") as file:
        file.write(picture(comparison.title, comparison.baseline, costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("--config", default="configs/quickstart.json", help="relative to the repository")
    parser.add_argument("--variants", type=lambda text: text.split(","), help="the baseline among them")
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", default="runs/losses", help="relative to the repository")
    parser.add_argument("--out", help="relative to the repository")
    parser.add_argument("--redraw", metavar="NAME", help="relative to the repository")
    args = parser.parse_args()
    command = shlex.join(["bench/compare/losses.py", *sys.argv[1:]])
    os.chdir(ROOT)
    comparison = COMPARISONS[args.comparison]
    if args.redraw:
        with open(args.redraw + ".json") as file:
            result = json.load(file)
        write(variants_of(comparison, list(dict.fromkeys(row["variant"] for row in result["rows"]))), args.redraw, result)
        return
    if args.variants:
        comparison = variants_of(comparison, args.variants)
    out = args.out or f"bench/results/{args.comparison}"

    with open(args.config) as file:
        kept_under = hashlib.sha256(json.dumps([file.read(), args.set]).encode()).hexdigest()[:8]
    rows = []
    for seed in args.seeds:
        for name, variant in comparison.variants.items():
            folder = f"{args.runs}/{kept_under}/{name}-seed-{seed}"
            run = run_command(args.config, variant, seed, args.set, folder)
            train(run, folder)
            rows.append(row_of(name, seed, run, folder))

    config = resolved(folder)
    machine = report.machine() + ", host device"
    result = {"command": command, "machine": machine, "config": config, "bigram": bar_of(config), "rows": rows}
    # The page is of a config, not of where it lay.
    del config["output_dir"], config["data"]["train"], config["data"]["eval"]
    config["model"].pop("path", None)
    write(comparison, out, result)


if __name__ == "__main__":
    main()
