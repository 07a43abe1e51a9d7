#!/usr/bin/env bash
# step_124m.sh [ROUNDS] [THREADS]: Tandem's and PyTorch's training step of configs/bench_124m.json, in turns: each round runs
# step_bench (2 steps to warm up, then five whole steps, each followed by its products alone), then seven steps of PyTorch, and
# keeps the median of the last five. Prints a JSON line per run and a last one with the medians over the rounds, their spread
# (largest less smallest, over the median) and the ratios, in wall and in processor time. On a machine that does other things,
# only the latter means much, and only with THREADS 1: PyTorch's threads spin while they wait for each other.
# PYTHON: a python3 with torch and transformers (tests/golden/requirements.txt). STEP_BENCH: the program, if built elsewhere.
set -euo pipefail
root=$(readlink -f "$(dirname "$0")/../..")
rounds=${1:-3}
threads=${2:-2}
python=${PYTHON:-python3}
step_bench=${STEP_BENCH:-$root/build/release/step_bench}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

for ((round = 1; round <= rounds; ++round)); do
  "$step_bench" --config "$root/configs/bench_124m.json" --set "device.threads=$threads" | "$python" -c '
import json, sys
bench = json.load(sys.stdin)
print(json.dumps(dict(program="tandem", threads=int(sys.argv[1]), tokens=bench["tokens"], step_ms=bench["step"]["ms"],
                      median_ms=bench["step"]["median_ms"], median_cpu_ms=bench["step"]["median_cpu_ms"],
                      tokens_per_s=bench["tokens_per_s"], products_share=bench["products_share"],
                      openblas_coretype=bench["openblas_coretype"])))' "$threads" | tee -a "$rows"
  # A BLAS kernel forced for Debian's OpenBLAS is not for PyTorch.
  env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE "$python" "$root/bench/compare/torch_cpu.py" "$root/configs/bench_124m.json" \
    --threads "$threads" | tee -a "$rows"
done
"$python" - "$rows" <<'PYTHON'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
out = {}
for what in ("ms", "cpu_ms"):
    of = {p: [r["median_" + what] for r in rows if r["program"] == p] for p in ("tandem", "pytorch")}
    median = {p: statistics.median(values) for p, values in of.items()}
    for p, values in of.items():
        out[f"{p}_{what}"] = median[p]
        out[f"{p}_{what}_spread"] = round((max(values) - min(values)) / median[p], 3)
    out[f"speedup_{what}"] = round(median["pytorch"] / median["tandem"], 3)
print(json.dumps(out))
PYTHON
