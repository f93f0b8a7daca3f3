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

. "$here/installing.sh"

stamp=$(sha256sum <"$requirements" | cut -c1-16)
if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi
python=${PYTHON:-python3}
echo "bench-env: making $venv with $python"
make_environment "$venv" "$python"
# Uses the CPU build of torch if pip is configured to find one (find-links or an extra index).
install "$venv" --requirement "$requirements"
# The app as well: all of them read traces in one environment, with one pandas.
install "$venv" --editable "$here/..[app]"
echo "$stamp" >"$venv/.ready"
echo "bench-env: $venv is ready"
