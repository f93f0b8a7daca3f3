#!/usr/bin/env bash
# Installs Debian packages that are missing, where that is possible; says so where it is not.
#
#     tools/system-packages.sh PACKAGE…
#
# What cannot be installed is no error here: the tests that need it say by name what they missed,
# and in CI they fail.
set -uo pipefail

# Packages whose programs are called otherwise, or that have none.
program() {
    case $1 in
        python3-venv | python3-dev) echo "" ;;
        iproute2) echo tc ;;
        *) echo "$1" ;;
    esac
}

# Not on everybody's PATH.
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
        echo "system-packages: not installed, for want of root: ${missing[*]} (sudo apt-get install ${missing[*]})" >&2
        exit 0
    fi
    sudo=(sudo -n)
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "system-packages: not installed, for want of apt-get: ${missing[*]}" >&2
    exit 0
fi
# apt-get works for one at a time.
exec 9>"${TMPDIR:-/tmp}/stallscope-packages.lock"
! command -v flock >/dev/null || flock 9
echo "system-packages: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq && "${sudo[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null ||
    echo "system-packages: apt-get could not install ${missing[*]}" >&2
exit 0
