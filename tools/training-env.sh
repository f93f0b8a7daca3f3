#!/usr/bin/env bash
# Make the training side: TensorFlow, PyTorch and Horovod (Gloo, CPU) in one virtual environment.
#
#     tools/training-env.sh VENV
#
# Training pins packages of 2023, which the app does not: two environments, as real users have them.
# Horovod is compiled once per set of versions and kept as a wheel in the cache folder
# (STALLSCOPE_CACHE, otherwise ~/.cache/stallscope), so that a second environment takes a minute.
set -euo pipefail

venv=${1:?usage: tools/training-env.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/training-requirements.txt
horovod_version=0.28.1

fail() { echo "training-env: $*" >&2; exit 1; }

. "$here/installing.sh"
. "$here/horovod-wheel.sh"

# The wheel depends on these versions and on horovod-wheel.sh: raise the recipe's number with changes.
recipe=2
stamp=$( (cat "$requirements"; echo "horovod $horovod_version, recipe $recipe") | sha256sum | cut -c1-16)
# Recorders upload with these; they are not requirements, on which the wheel depends.
uploads="mlflow-skinny==3.17.2"
ready="$stamp $uploads"
wheels=$cache/wheels/horovod-$horovod_version-$stamp-$(uname -m)

if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$ready" ]; then
    exit 0
fi

python=$(find_python 3.11 3.11 "${TRAINING_PYTHON:-}" python3.11 python3 python) ||
    fail "TensorFlow 2.15 needs Python 3.11, and none was found. Install it ('apt-get install python3.11 python3.11-venv' on Debian 12, 'pyenv install 3.11' or 'uv python install 3.11' elsewhere) or name one: TRAINING_PYTHON=/path/to/python3.11."
echo "training-env: making $venv with $python"
make_environment "$venv" "$python"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
# Uses the CPU build of torch if pip is configured to find one (find-links or an extra index).
install "$venv" --requirement "$requirements"

if ! ls "$wheels"/horovod-*.whl >/dev/null 2>&1; then
    "$here/system-packages.sh" cmake g++ make
    [ -f "$headers/Python.h" ] || "$here/system-packages.sh" python3-dev
    for tool in cmake g++ make; do
        command -v "$tool" >/dev/null || fail "$tool is needed to build Horovod: apt-get install cmake g++ make"
    done
    echo "training-env: building Horovod $horovod_version, about 4 minutes on 2 cores, once"
    build_horovod "$venv" "$horovod_version" "$wheels" TENSORFLOW PYTORCH
fi
# The recorder has no dependencies, and the app's would conflict with these.
install "$venv" --no-deps "$wheels"/horovod-*.whl --editable "$here/.."
install "$venv" --requirement "$requirements" "$uploads"
echo "$ready" >"$venv/.ready"
echo "training-env: $venv is ready"
