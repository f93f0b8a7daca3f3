#!/usr/bin/env bash
# Makes the app's virtual environment, or adds extras to it.
#
#     tools/app-env.sh VENV EXTRAS [CONSTRAINTS]
set -euo pipefail

venv=${1:?usage: tools/app-env.sh VENV EXTRAS}
extras=${2:?usage: tools/app-env.sh VENV EXTRAS}
constraints=${3:-/dev/null}
root=$(cd "$(dirname "$0")/.." && pwd)

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "app-env: Stallscope's app needs Python 3.11 or later, and none was found." \
        "On Debian 12: apt-get install python3 python3-venv; or name one: make PYTHON=/path/to/python3.11 …" >&2
    exit 1
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    echo "app-env: making $venv with $python"
    if ! "$python" -m venv "$venv" 2>/dev/null; then
        rm -rf "$venv"
        "$root/tools/system-packages.sh" python3-venv
        "$python" -m venv "$venv"
    fi
fi
"$venv/bin/python" -m pip --disable-pip-version-check install --quiet \
    --constraint "$constraints" --editable "$root[$extras]"
