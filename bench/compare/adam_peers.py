#!/usr/bin/env python3
"""Tandem's Adam pass beside DeepSpeed's and PyTorch's steps on the same cores, in turns.

    adam_peers.py [FOLDER] [--threads 1,2] [--parameters 32e6] [--starts 3] [--rounds 7] [--passes 3] [--formats A,B] [--out NAME]

FOLDER (default: build/peers) gets a virtual environment with the peers of requirements-peers.txt (about 6 GB, and the network; it is
kept) and DeepSpeed's CPU Adam, built by its own builder. A peer that can't be installed or started is left out, and the page says
why.

For each number of threads all programs start, bound to so many cores, one thread on each. In every round each side in turn makes
--passes passes, whose median counts; Tandem's fp32 states come twice, which shows the noise. What is compared are times of one
round. All are started anew --starts times, since it matters where a program's memory lies. Writes NAME.json and
NAME.md (default: bench/results/adam_peers). Tandem is build/release/adam_bench, or $ADAM_BENCH. Needs Python's standard library
alone, g++ and python3-venv.
"""
import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time

import adam_peers_page
import report
from report import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = "fp32+fp32"
AGAIN = BASE + " again"
PACKAGES = {"torch": ["torch", "numpy"], "deepspeed": ["deepspeed", "ninja", "setuptools"]}
PAUSE = 0.02  # seconds between sides, in which the threads of the last one go to sleep


class Unavailable(Exception):
    pass


def without_folders(line: str) -> str:
    return re.sub(r"(?<![\w:/])/\S*/", "", line)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return without_folders(lines[-1]) if lines else "it says nothing"


def install(folder: str, name: str) -> None:
    python = os.path.join(folder, "venv/bin/python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(folder, "venv")], check=True)
    pins = os.path.join(HERE, "requirements-peers.txt")
    command = [python, "-m", "pip", "install", "--quiet", "-c", pins, *PACKAGES[name]]
    done = subprocess.run(command, text=True, stderr=subprocess.PIPE)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]  # the first is the cause
        raise Unavailable("not installed: " + without_folders((errors or ["pip says nothing"])[0]))


def cores(count: int) -> set:
    """One CPU of each of the first `count` cores that this process may run on."""
    firsts = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
            firsts.setdefault(file.read().strip(), cpu)
    if count > len(firsts):
        sys.exit(f"error: {count} threads on {len(firsts)} cores\n  at: --threads\n  try: --threads {len(firsts)}")
    return set(list(firsts.values())[:count])


class Program:
    """Answers each line with a line of JSON, and says one about itself first."""

    def __init__(self, name: str, command: list, folder: str, threads: int, env: dict) -> None:
        self.log = os.path.join(folder, name + ".log")
        bound = cores(threads)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=os.environ | env,
                preexec_fn=lambda: os.sched_setaffinity(0, bound))
        self.about = self.answer()
        if self.about.pop("threads") != threads:
            raise Unavailable(f"not started: it runs another number of threads than {threads}")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            with open(self.log) as log:
                raise Unavailable("not started: " + last_line(log.read()))
        return json.loads(line)

    def ask(self, line: str):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def start_tandem(args, threads: int) -> Program:
    program = os.environ.get("ADAM_BENCH", os.path.join(ROOT, "build/release/adam_bench"))
    command = [program, "--on-demand", "--threads", str(threads), "--parameters", str(args.parameters),
               "--formats", ",".join(args.formats)]
    return Program("tandem", command, args.folder, threads, {})


def start_peer(args, name: str, threads: int, parameters: int) -> Program:
    """With 2 MiB pages, as Tandem's, and with the folder's ninja."""
    environment = os.path.join(args.folder, "venv/bin")
    env = dict(OMP_NUM_THREADS=str(threads), THP_MEM_ALLOC_ENABLE="1", DS_ACCELERATOR="cpu",
               TORCH_EXTENSIONS_DIR=os.path.join(args.folder, "extensions"), PATH=environment + ":" + os.environ["PATH"])
    command = [os.path.join(environment, "python"), os.path.join(HERE, "adam_peers_worker.py"), name, str(parameters)]
    return Program(name, command, args.folder, threads, env)


def median_of(passes: list):
    """Of seconds, or of the seconds of each part."""
    if not isinstance(passes[0], dict):
        return statistics.median(passes)
    return {key: statistics.median(one[key] for one in passes) for key in passes[0]}


def measure(args, threads: int, peers: list, about: dict) -> dict:
    """Side: seconds of each round."""
    programs = {"tandem": start_tandem(args, threads)}
    parameters = programs["tandem"].about["parameters"]
    for name in peers:
        programs[name] = start_peer(args, name, threads, parameters)
    about.update({name: program.about for name, program in programs.items()})
    # Neither of the two follows the other, whose planes the caches may still hold.
    sides = [(BASE, "tandem", BASE), *((name, name, "step") for name in peers), (AGAIN, "tandem", BASE),
             *((name, "tandem", name) for name in args.formats if name != BASE)]
    seconds = {side: [] for side, _, _ in sides}
    for _ in range(args.rounds):
        for side, program, line in sides:
            time.sleep(PAUSE)
            seconds[side].append(median_of([programs[program].ask(line) for _ in range(args.passes)]))
    for program in programs.values():
        program.close()
    return seconds


def usable_peers(args) -> tuple:
    """Those that are installed and run; why others don't."""
    peers, missing = [], {}
    for name in PACKAGES:  # DeepSpeed's needs PyTorch's
        try:
            install(args.folder, name)
            start_peer(args, name, 1, 1000).close()
            peers.append(name)
        except Unavailable as reason:
            missing[name] = str(reason)
            print(f"{name}: {reason}", file=sys.stderr)
    return sorted(peers), missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(ROOT, "build/peers"))
    parser.add_argument("--threads", default="1,2", type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--parameters", default=32_000_000, type=lambda text: int(float(text)))
    parser.add_argument("--starts", default=3, type=int)
    parser.add_argument("--rounds", default=7, type=int)
    parser.add_argument("--passes", default=3, type=int)
    parser.add_argument("--formats", default=f"{BASE},fp32+bf16,split+bf16,fp32+int8,ulp8+int8",
                        type=lambda text: list(dict.fromkeys([BASE, *text.split(",")])))
    parser.add_argument("--out", default=os.path.join(ROOT, "bench/results/adam_peers"))
    args = parser.parse_args()
    own_words = [word for word in sys.argv[1:] if word != args.folder]  # the page isn't of a folder
    command = shlex.join(["bench/compare/adam_peers.py", *own_words])
    args.folder = os.path.abspath(args.folder)
    os.makedirs(args.folder, exist_ok=True)

    load = round(os.getloadavg()[0], 1)
    peers, missing = usable_peers(args)
    about, seconds = {}, {threads: {} for threads in args.threads}
    for _ in range(args.starts):
        for threads in args.threads:
            for side, values in measure(args, threads, peers, about).items():
                seconds[threads].setdefault(side, []).extend(values)
    result = dict(command=command, machine=report.machine(), load=load, about=about, missing=missing, starts=args.starts,
                  rounds=args.rounds, passes=args.passes, seconds=seconds)
    result["rows"] = adam_peers_page.rows(result)
    report.write(args.out, result, adam_peers_page.page(result))


if __name__ == "__main__":
    main()
