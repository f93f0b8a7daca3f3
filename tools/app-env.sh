#!/usr/bin/env bash
# Make the app's virtual environment, or add extras to it.
#
#     tools/app-env.sh VENV EXTRAS [CONSTRAINTS]
#
# NEWEST_PYTHON=3.11 limits Python to that version.
set -euo pipefail

venv=${1:?usage: tools/app-env.sh VENV EXTRAS}
extras=${2:?usage: tools/app-env.sh VENV EXTRAS}
constraints=${3:-/dev/null}
root=$(cd "$(dirname "$0")/.." && pwd)

. "$root/tools/installing.sh"

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python 3.11 "${NEWEST_PYTHON:-3.99}" "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python) || {
        echo "app-env: Stallscope's app needs Python 3.11 or later, and none was found." \
            "On Debian 12: apt-get install python3 python3-venv; or name one: make PYTHON=/path/to/python3.11 …" >&2
        exit 1
    }
    echo "app-env: making $venv with $python"
    make_environment "$venv" "$python"
fi
install "$venv" --constraint "$constraints" --editable "$root[$extras]"
