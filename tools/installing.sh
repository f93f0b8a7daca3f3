# Make environments and install into them with uv; the other scripts here source this file.
#
#     make_environment VENV PYTHON
#     install VENV ARGUMENT…
#     installed VENV
#
# uv unpacks a wheel once per machine and links its files into each environment, where that is possible: a second
# clone's environments take seconds. It is installed into the cache folder (STALLSCOPE_CACHE, otherwise
# ~/.cache/stallscope), and uses the indexes, folders of wheels and constraints that pip is configured with.

cache=${STALLSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stallscope}
_tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$_tools/find-python.sh"

make_environment() {
    _need_uv
    rm -rf "$1"
    "$_uv" venv --quiet --python "$2" "$1"
}

install() {
    _need_uv
    "$_uv" pip install --quiet --python "$1/bin/python" "${@:2}"
}

# Print what is installed, without the files and folders that were named.
installed() {
    _need_uv
    "$_uv" pip freeze --quiet --exclude-editable --python "$1/bin/python" | grep -v ' @ '
}

_need_uv() {
    local settings
    [ -z "${_uv:-}" ] || return 0
    _uv=$cache/uv/bin/uv
    # Its Python may have been removed since.
    [ -x "$_uv" ] && [ -x "$cache/uv/bin/python" ] || _install_uv
    settings=$("$cache/uv/bin/python" "$_tools/uv_settings.py")
    eval "$settings"
}

# Several scripts may install uv at the same time: each into its own folder, and the first one that is ready stays.
_install_uv() {
    local python part
    python=$(find_python 3.8 3.99 "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python) || {
        echo "installing: no Python was found. On Debian: apt-get install python3 python3-venv" >&2
        return 1
    }
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/uv.XXXXXX")
    if ! "$python" -m venv "$part" 2>/dev/null; then
        "$_tools/system-packages.sh" python3-venv
        "$python" -m venv "$part"
    fi
    "$part/bin/python" -m pip --disable-pip-version-check install --quiet "uv>=0.9,<1"
    [ -x "$cache/uv/bin/python" ] || rm -rf "$cache/uv"
    "$part/bin/python" -c 'import os, sys; os.rename(*sys.argv[1:])' "$part" "$cache/uv" 2>/dev/null || rm -rf "$part"
}
