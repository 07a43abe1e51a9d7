#!/usr/bin/env bash
# run_round_trip.sh [FOLDER] [check_round_trip.py's flags]: checks that models of every family come out of Tandem as they went in, in
# FOLDER/round_trip (runs/pypi). VENV names a virtual environment, else it is FOLDER/venv; TANDEM: the program, else
# build/release/tandem. A minute once the environment is there.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
folder=${1:-$here/../../runs/pypi}
shift || true
mkdir -p "$folder"
folder=$(readlink -f "$folder")
source "$here/environment.sh"
environment_in "$folder"
exec "$venv/bin/python" "$here/check_round_trip.py" "$folder/round_trip" "$@"
