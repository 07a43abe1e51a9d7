#!/usr/bin/env bash
# step_124m.sh [ROUNDS]: Tandem's and PyTorch's training step of configs/bench_124m.json, interleaved: each round runs seven
# steps of the one, then of the other, and keeps the median of the last five. Prints a JSON line per run and a last line with the
# medians over rounds and their ratio. PYTHON: a python3 with torch and transformers (tests/golden/requirements.txt).
set -euo pipefail
root=$(readlink -f "$(dirname "$0")/../..")
rounds=${1:-3}
python=${PYTHON:-python3}
tandem=${TANDEM:-$root/build/release/tandem}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for round in $(seq "$rounds"); do
  run=$scratch/run-$round
  "$tandem" train "$root/configs/bench_124m.json" --quiet --set "output_dir=$run" >&2
  "$python" - "$run/metrics.jsonl" <<'PYTHON' | tee -a "$scratch/rows"
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
times = [line["step_ms"] for line in lines if not line.get("eval")][2:]
tokens = next(line["tokens"] for line in lines if not line.get("eval"))
median = statistics.median(times)
print(json.dumps(dict(program="tandem", tokens=tokens, step_ms=[round(t, 1) for t in times], median_ms=round(median, 1),
                      tokens_per_s=round(1e3 * tokens / median, 1))))
PYTHON
  rm -rf "$run" # its checkpoint is 2 GB
  # A BLAS kernel forced for Debian's OpenBLAS is not for PyTorch.
  env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE "$python" "$root/bench/compare/torch_cpu.py" "$root/configs/bench_124m.json" |
    tee -a "$scratch/rows"
done
"$python" - "$scratch/rows" <<'PYTHON'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
median = {p: statistics.median(r["median_ms"] for r in rows if r["program"] == p) for p in ("tandem", "pytorch")}
print(json.dumps(dict(tandem_ms=median["tandem"], pytorch_ms=median["pytorch"], speedup=round(median["pytorch"] / median["tandem"], 3))))
PYTHON
