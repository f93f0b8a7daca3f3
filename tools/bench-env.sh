#!/usr/bin/env bash
# Make the environment of the peers that the benchmarks measure Stallscope against.
#
#     tools/bench-env.sh VENV
#
# They need dozens of packages, which must stay out of the app's and the training environments.
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
# Uses the CPU build of torch if pip is configured to find one (find-links or an extra index).
"${pip[@]}" install --quiet --requirement "$requirements"
# The app as well: all of them read traces in one environment, with one pandas.
"${pip[@]}" install --quiet setuptools wheel
"${pip[@]}" install --quiet --no-build-isolation --editable "$here/..[app]"
echo "$stamp" >"$venv/.ready"
echo "bench-env: $venv is ready"
