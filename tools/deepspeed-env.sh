#!/usr/bin/env bash
# Make the training side of DeepSpeed on CPUs: DeepSpeed in VENV, and torch of KERAS3.
#
#     tools/deepspeed-env.sh VENV KERAS3
#
# KERAS3 is tools/keras3-env.sh's: another torch would take a gigabyte. Nothing is compiled: the tests switch DeepSpeed's
# own collectives for one host off.
set -euo pipefail

usage="usage: tools/deepspeed-env.sh VENV KERAS3"
venv=${1:?$usage} keras3=${2:?$usage}
here=$(cd "$(dirname "$0")" && pwd)
package="deepspeed==0.19.8"

fail() { echo "deepspeed-env: $*" >&2; exit 1; }

[ -f "$keras3/.ready" ] || fail "$keras3 is not there yet: tools/keras3-env.sh $keras3"
packages=$("$keras3/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
packages=$(cd "$packages" && pwd -P)
stamp="$package $(cat "$keras3/.ready") $packages"
if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi
echo "deepspeed-env: making $venv"
rm -rf "$venv"
"$keras3/bin/python" -m venv "$venv"
# After VENV's own packages, and without the .pth files among those of KERAS3.
echo "$packages" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/keras3.pth"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
# The operations for GPUs need CUDA's compiler.
DS_BUILD_OPS=0 DS_ACCELERATOR=cpu "${pip[@]}" install --quiet "$package" "setuptools>=69" wheel
# The recorder has no dependencies, and the app's would disturb the tests.
"${pip[@]}" install --quiet --no-deps --no-build-isolation --editable "$here/.."
echo "$stamp" >"$venv/.ready"
echo "deepspeed-env: $venv is ready"
