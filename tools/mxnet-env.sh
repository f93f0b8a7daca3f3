#!/usr/bin/env bash
# Make the training side of MXNet: MXNet 1.9.1 and Horovod (Gloo, CPU) on Python 3.8.
#
#     tools/mxnet-env.sh VENV
#
# Horovod is compiled once and kept as a wheel in the cache folder (STALLSCOPE_CACHE, otherwise
# ~/.cache/stallscope).
set -euo pipefail

venv=${1:?usage: tools/mxnet-env.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/mxnet-requirements.txt
horovod_version=0.28.1

fail() { echo "mxnet-env: $*" >&2; exit 1; }
. "$here/installing.sh"
. "$here/horovod-wheel.sh"

# The wheel depends on these versions and on horovod-wheel.sh: raise the recipe's number with changes.
recipe=2
stamp=$( (cat "$requirements"; echo "horovod $horovod_version, recipe $recipe") | sha256sum | cut -c1-16)
wheels=$cache/wheels/horovod-mxnet-$horovod_version-$stamp-$(uname -m)

if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi

# pyenv has Pythons that are not on PATH.
python=$(find_python 3.8 3.8 "${MXNET_PYTHON:-}" python3.8 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.8.*/bin/python) ||
    fail "MXNet 1.9.1 needs Python 3.8, and none was found: 'pyenv install 3.8', or MXNET_PYTHON=/path/to/python3.8"
echo "mxnet-env: making $venv with $python"
make_environment "$venv" "$python"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
install "$venv" --requirement "$requirements"

if ! ls "$wheels"/horovod-*.whl >/dev/null 2>&1; then
    "$here/system-packages.sh" cmake g++ make
    [ -f "$headers/Python.h" ] || fail "$python has no headers to build with: $headers/Python.h"
    echo "mxnet-env: building Horovod $horovod_version for MXNet, about 2 minutes on 2 cores, once"
    build_horovod "$venv" "$horovod_version" "$wheels" MXNET
fi
install "$venv" --no-deps "$wheels"/horovod-*.whl --editable "$here/.."
echo "$stamp" >"$venv/.ready"
echo "mxnet-env: $venv is ready"
