#!/usr/bin/env bash
# Makes the environment of the peers that the benchmarks measure Stallscope against.
#
#     tools/bench-env.sh VENV
#
# They bring dozens of packages of their own, which neither the app nor the training side wants to meet.
set -euo pipefail

venv=${1:?usage: tools/bench-env.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/bench-requirements.txt

stamp=$(sha256sum <"$requirements" | cut -c1-16)
if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi
python=${PYTHON:-python3}
echo "bench-env: making $venv with $python"
rm -rf "$venv"
"$python" -m venv "$venv" || { echo "bench-env: $python has no venv module: apt-get install python3-venv" >&2; exit 1; }
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
# The CPU build of torch is taken where pip is configured to find one (find-links or an extra index).
"${pip[@]}" install --quiet --requirement "$requirements"
# The app as well: traces are read by all of them in one environment, with one pandas.
"${pip[@]}" install --quiet setuptools wheel
"${pip[@]}" install --quiet --no-build-isolation --editable "$here/..[app]"
echo "$stamp" >"$venv/.ready"
echo "bench-env: $venv is ready"
