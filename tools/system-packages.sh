#!/usr/bin/env bash
# Install missing Debian packages if possible, and say which ones could not be installed.
#
#     tools/system-packages.sh PACKAGE…
#
# A failure is no error here: the tests that need a package name it when they are skipped, and fail in CI.
set -uo pipefail

# Packages whose program has another name, or that have none.
program() {
    case $1 in
        python3-venv | python3-dev) echo "" ;;
        bubblewrap) echo bwrap ;;
        iproute2) echo tc ;;
        openmpi-bin) echo mpirun ;;
        slurm-client) echo srun ;;
        *) echo "$1" ;;
    esac
}

# sbin may be missing on PATH.
PATH=$PATH:/usr/sbin:/sbin
missing=()
for package in "$@"; do
    name=$(program "$package")
    [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1 || ! sudo -n true 2>/dev/null; then
        echo "system-packages: not installed, as this needs root: ${missing[*]} (sudo apt-get install ${missing[*]})" >&2
        exit 0
    fi
    sudo=(sudo -n)
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "system-packages: not installed, as there is no apt-get: ${missing[*]}" >&2
    exit 0
fi
# Only one apt-get can run at a time.
exec 9>"${TMPDIR:-/tmp}/stallscope-packages.lock"
! command -v flock >/dev/null || flock 9
echo "system-packages: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq && "${sudo[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null ||
    echo "system-packages: apt-get could not install ${missing[*]}" >&2
exit 0
