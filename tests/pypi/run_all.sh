#!/usr/bin/env bash
# run_all.sh [FOLDER] [check_smollm2.py's flags]: everything that is to hold of SmolLM2-135M, from an empty FOLDER
# (runs/smollm2) to the exported checkpoint. Makes the model with make_smollm2.sh, which says what VENV is for, and runs
# check_smollm2.py on it. Status 1 on any miss. Needs 11 GB of disk (5 with VENV), and the network for the packages;
# TANDEM: the program, else build/release/tandem.
set -euo pipefail
export TQDM_DISABLE=1 # no progress bars
here=$(dirname "$(readlink -f "$0")")
folder=${1:-$here/../../runs/smollm2}
shift || true
mkdir -p "$folder"
folder=$(readlink -f "$folder")
[ -f "$folder/heldout.bin" ] || "$here/make_smollm2.sh" "$folder"
exec "${VENV:-$folder/venv}/bin/python" "$here/check_smollm2.py" "$folder" "$@"
