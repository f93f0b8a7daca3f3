#!/usr/bin/env bash
# Make the training side without Horovod: Keras 3 on TensorFlow, torch and JAX, Lightning, and Hugging Face's
# transformers and Accelerate.
#
#     tools/keras3-env.sh VENV
#
# TensorFlow 2.15, which Horovod needs, has Keras 2: so there are two environments.
set -euo pipefail

venv=${1:?usage: tools/keras3-env.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/keras3-requirements.txt

fail() { echo "keras3-env: $*" >&2; exit 1; }
. "$here/installing.sh"

# tf_keras requires the package tensorflow, which would overwrite the files of tensorflow-cpu: it is installed
# without what it requires.
tf_keras=tf_keras==2.21.0
stamp=$( (cat "$requirements"; echo "$tf_keras") | sha256sum | cut -c1-16)
if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi
python=$(find_python 3.11 3.13 "${KERAS3_PYTHON:-}" python3.11 python3.12 python3.13 python3 python) ||
    fail "TensorFlow 2.21 needs Python 3.11 to 3.13, and none was found: KERAS3_PYTHON=/path/to/python3.11 names one."
echo "keras3-env: making $venv with $python"
make_environment "$venv" "$python"
# Uses the CPU build of torch if pip is configured to find one (find-links or an extra index).
install "$venv" --requirement "$requirements"
# The recorder has no dependencies, and the app's would disturb the tests.
install "$venv" --no-deps "$tf_keras" --editable "$here/.."
echo "$stamp" >"$venv/.ready"
echo "keras3-env: $venv is ready"
