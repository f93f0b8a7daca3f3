#!/usr/bin/env bash
# Make a training environment VENV with PACKAGE, on top of the packages of KERAS3.
#
#     tools/on-keras3-env.sh VENV KERAS3 PACKAGE
#
# For Ray Train, and for DeepSpeed on CPUs. KERAS3 is tools/keras3-env.sh's: another torch would take a gigabyte.
set -euo pipefail

usage="usage: tools/on-keras3-env.sh VENV KERAS3 PACKAGE"
venv=${1:?$usage} keras3=${2:?$usage} package=${3:?$usage}
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "on-keras3-env: $*" >&2; exit 1; }

[ -f "$keras3/.ready" ] || fail "$keras3 is not there yet: tools/keras3-env.sh $keras3"
packages=$("$keras3/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
packages=$(cd "$packages" && pwd -P)
stamp="$package $(cat "$keras3/.ready") $packages"
if [ -f "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$stamp" ]; then
    exit 0
fi
echo "on-keras3-env: making $venv"
rm -rf "$venv"
"$keras3/bin/python" -m venv "$venv"
# After VENV's own packages, and without the .pth files among those of KERAS3.
echo "$packages" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/keras3.pth"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
# DeepSpeed's operations for GPUs need CUDA's compiler, and its tests switch its own collectives for one host off:
# nothing is compiled.
DS_BUILD_OPS=0 DS_ACCELERATOR=cpu "${pip[@]}" install --quiet "$package" "setuptools>=69" wheel
# The recorder has no dependencies, and the app's would disturb the tests.
"${pip[@]}" install --quiet --no-deps --no-build-isolation --editable "$here/.."
echo "$stamp" >"$venv/.ready"
echo "on-keras3-env: $venv is ready"
