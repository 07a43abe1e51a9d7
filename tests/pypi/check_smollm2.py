#!/usr/bin/env python3
"""Evaluates, trains and exports SmolLM2-135M with the real program, and holds it against transformers.

    check_smollm2.py FOLDER [--out NAME]

FOLDER: what make_smollm2.sh made; the run goes into FOLDER/run, which is replaced. Checked: `tandem eval` gives the loss of
transformers on the same tokens, in bf16 to 0.5 % and in fp32 to 0.01 %; configs/smollm2_135m.json lowers training loss and
held-out loss; the checkpoint loads in transformers, with every file and tensor as it came, and has the loss that Tandem
gives it, to 0.1 %. Prints a table of the checks, and with --out writes it to NAME.md and NAME.json. Status 1 on any miss.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
TANDEM = os.environ.get("TANDEM", os.path.join(ROOT, "build/release/tandem"))
LENGTH, TOKENS = 256, 4096  # of an evaluation; the config's own
WINDOW = 10  # steps whose mean loss is compared, at the start and at the end
CONFIG = os.path.join(ROOT, "configs/smollm2_135m.json")
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}


class Checks:
    """What was held against what; a miss is noted, and the rest still runs."""

    def __init__(self):
        self.rows = []

    def add(self, what: str, value, wanted: str, holds: bool) -> None:
        self.rows.append({"what": what, "value": value, "wanted": wanted, "holds": bool(holds)})
        print(f"{'ok  ' if holds else 'MISS'} {what}: {value} ({wanted})", file=sys.stderr)

    def near(self, what: str, value: float, reference: float, within: float) -> None:
        share = abs(value - reference) / abs(reference)
        self.add(what, f"{value:.5f} against {reference:.5f}", f"{share:.4%} apart, at most {100 * within:g} %", share <= within)


def tandem(*arguments: str, folder: str) -> tuple:
    """Runs the program. Returns its JSON object, what it said on stderr, and the process's resource usage."""
    log = os.path.join(folder, "tandem.log")
    with open(log, "w+") as err:
        child = subprocess.Popen([TANDEM, *arguments, "--json"], stdout=subprocess.PIPE, stderr=err, text=True)
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        said = err.read()
    if child.returncode != 0:
        sys.exit(f"tandem {' '.join(arguments)} ended with {child.returncode}:\n{said}")
    return json.loads(out), said, usage


def evaluate(folder: str, model: str, dtype: str) -> float:
    said = tandem("eval", "--model", model, "--data", os.path.join(folder, "heldout.bin"), "--sequence-length", str(LENGTH),
                  "--max-tokens", str(TOKENS), "--dtype", DTYPES[dtype], folder=folder)
    return said[0]["loss"]


def transformers_loss(script: str, folder: str, model: str, dtype: str) -> float:
    """By check_eval.py or check_export.py, in a process of its own."""
    command = [sys.executable, os.path.join(ROOT, "tests/pypi", script), model, os.path.join(folder, "heldout.bin"),
               "--sequence-length", str(LENGTH), "--max-tokens", str(TOKENS), "--dtype", dtype]
    # A BLAS kernel forced for Debian's OpenBLAS is not for PyTorch.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(out)["loss"]


def check_evaluation(checks: Checks, folder: str) -> float:
    """Returns the loss before training, in bf16."""
    model = os.path.join(folder, "model")
    loss = {dtype: evaluate(folder, model, dtype) for dtype in DTYPES}
    for dtype, within in ("bf16", 0.005), ("fp32", 1e-4):
        reference = transformers_loss("check_eval.py", folder, model, dtype)
        checks.near(f"loss of the model as it came, {dtype}, against transformers", loss[dtype], reference, within)
    return loss["bf16"]


def banner_bytes(said: str) -> int:
    """The sum of the start banner's memory lines: device, host and fixed."""
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    found = [re.search(pattern + r"\s+([\d.]+) (B|[KMG]iB)", said) for pattern in (r"memory\s+device", r"\n\s+host", r"\n\s+fixed")]
    return int(sum(float(match[1]) * units[match[2]] for match in found))


def check_training(checks: Checks, folder: str, before: float) -> dict:
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    settings = {"model.path": os.path.join(folder, "model"), "data.train": os.path.join(folder, "train.bin"),
                "data.eval": os.path.join(folder, "heldout.bin"), "output_dir": run}
    flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    end, said, usage = tandem("train", CONFIG, *flags, folder=folder)
    with open(os.path.join(run, "metrics.jsonl")) as file:
        steps = [line for line in map(json.loads, file) if not line.get("eval")]
    losses = [line["loss"] for line in steps]
    first, last = statistics.fmean(losses[:WINDOW]), statistics.fmean(losses[-WINDOW:])
    checks.add("steps with the optimizer on the host, none skipped", len(steps), "at least 30", len(steps) >= 30 and not end["skipped"])
    checks.add(f"training loss, mean of the last {WINDOW} steps", f"{last:.4f}", f"below that of the first {WINDOW}, {first:.4f}", last < first)
    checks.add("held-out loss after training", f"{end['eval_loss']:.4f}", f"below that before, {before:.4f}", end["eval_loss"] < before)
    return {"checkpoint": end["checkpoint"], "eval_loss": end["eval_loss"], "steps": len(steps),
            "delayed_steps": sum(line["version_lag"] for line in steps), "tokens_per_step": steps[0]["tokens"],
            "step_ms": round(statistics.median(line["step_ms"] for line in steps[2:])), "seconds": end["seconds"],
            "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_rss_bytes": usage.ru_maxrss * 1024,
            "banner_bytes": banner_bytes(said)}


def tensors_of(folder: str) -> dict:
    """Name: dtype and shape, from the header of the folder's one safetensors file."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def same_bytes(a: str, b: str) -> bool:
    if not os.path.exists(b):
        return False
    with open(a, "rb") as left, open(b, "rb") as right:
        return left.read() == right.read()


def check_export(checks: Checks, folder: str, training: dict) -> None:
    model, export = os.path.join(folder, "model"), training["checkpoint"]
    files = sorted(set(os.listdir(model)) - {"model.safetensors"})
    changed = [name for name in files if not same_bytes(os.path.join(model, name), os.path.join(export, name))]
    checks.add("files beside the weights, byte for byte as they came", ", ".join(changed) or "all " + str(len(files)),
               ", ".join(files), not changed)
    tensors = tensors_of(export)
    checks.add("tensors of the export: names, shapes and dtypes", len(tensors), "as they came", tensors == tensors_of(model))
    checks.add("the tied head", "in the file" if "lm_head.weight" in tensors else "not in the file", "not in the file, as it came",
               "lm_head.weight" not in tensors)
    # Read back with the batch of the training: another one has other tiles in its products, so other roundings to bf16.
    again = tandem("eval", CONFIG, "--checkpoint", export, "--data", os.path.join(folder, "heldout.bin"), "--max-tokens", str(TOKENS),
                   folder=folder)[0]["loss"]
    checks.near("loss of the export by `tandem eval`, against the end of training", again, training["eval_loss"], 1e-12)
    ours = evaluate(folder, export, "bf16")
    checks.near("loss of the export, bf16, `tandem eval` against transformers", ours, transformers_loss("check_export.py", folder, export, "bf16"), 0.001)


def page(command: str, checks: Checks, training: dict) -> str:
    gib, peak, banner = 2**30, training["peak_rss_bytes"], training["banner_bytes"]
    lines = ["# SmolLM2-135M: evaluated, trained, exported", "",
             f"Command: `{command}`. Evaluations: {TOKENS} held-out tokens in sequences of {LENGTH}, nats per token.", "",
             "| what | value | wanted | holds |", "|---|---|---|---|"]
    lines += [f"| {row['what']} | {row['value']} | {row['wanted']} | {'yes' if row['holds'] else '**no**'} |" for row in checks.rows]
    lines += ["", f"Training: {training['steps']} steps of {training['tokens_per_step']} tokens, {training['delayed_steps']} of them with "
              f"weights that are one update old; {training['cpu_seconds'] / training['steps']:.1f} s of CPU time a step, start and end "
              f"included; median {training['step_ms'] / 1000:.1f} s a step on {len(os.sched_getaffinity(0))} cores, whatever else ran "
              f"there, {training['seconds']:.0f} s in all. Peak resident set {peak / gib:.3f} GiB; the banner said {banner / gib:.3f} GiB "
              f"({peak / banner - 1:+.1%})."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--out", help="write NAME.md and NAME.json")
    args = parser.parse_args()
    folder = os.path.realpath(args.folder)

    checks = Checks()
    before = check_evaluation(checks, folder)
    training = check_training(checks, folder, before)
    check_export(checks, folder, training)
    text = page(f"tests/pypi/run_all.sh {os.path.relpath(folder, ROOT)}", checks, training)
    print(text, end="")
    if args.out:
        training["checkpoint"] = os.path.relpath(training["checkpoint"], folder)
        with open(args.out + ".md", "w") as file:
            file.write(text)
        with open(args.out + ".json", "w") as file:
            json.dump({"checks": checks.rows, "training": training}, file, indent=1)
            file.write("\n")
    sys.exit(0 if all(row["holds"] for row in checks.rows) else 1)


if __name__ == "__main__":
    main()
