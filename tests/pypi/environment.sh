# Sourced: environment_in FOLDER sets venv, a virtual environment with requirements.txt: the one that VENV names, else FOLDER/venv,
# which is made if it isn't there (about 6 GB, and the network).
export TQDM_DISABLE=1 # no progress bars
environment_in() {
  venv=${VENV:-$1/venv}
  if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet -r "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/requirements.txt"
  fi
}
