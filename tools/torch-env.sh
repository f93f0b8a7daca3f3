#!/usr/bin/env bash
# Make a training environment VENV with PACKAGEs, and what they share in the versions of .venv-keras3.
#
#     tools/torch-env.sh VENV PACKAGE…
#
# For Ray Train, and for DeepSpeed and Megatron-Core on CPUs.
set -euo pipefail

venv=${1:?usage: tools/torch-env.sh VENV PACKAGE…}
packages=("${@:2}")
here=$(cd "$(dirname "$0")" && pwd)
versions=$here/keras3-requirements.txt

fail() { echo "torch-env: $*" >&2; exit 1; }
. "$here/installing.sh"

stamp=$( (cat "$versions"; echo "${packages[*]}") | sha256sum | cut -c1-16)
if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi
python=$(find_python 3.11 3.13 "${KERAS3_PYTHON:-}" python3.11 python3.12 python3.13 python3 python) ||
    fail "Ray Train and DeepSpeed need Python 3.11 to 3.13 here, and none was found: KERAS3_PYTHON=/path/to/python3.11 names one."
echo "torch-env: making $venv with $python"
make_environment "$venv" "$python"
# DeepSpeed's operations for GPUs need CUDA's compiler, and its tests switch its own collectives for one host off:
# nothing is compiled.
DS_BUILD_OPS=0 DS_ACCELERATOR=cpu install "$venv" --constraint "$versions" "${packages[@]}"
# The recorder has no dependencies, and the app's would disturb the tests.
install "$venv" --no-deps --editable "$here/.."
echo "$stamp" >"$venv/.ready"
echo "torch-env: $venv is ready"
