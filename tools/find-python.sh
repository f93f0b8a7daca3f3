# Find a Python for an environment; the other scripts here source this file.
#
#     python=$(find_python LOWEST HIGHEST CANDIDATE…) || …
#
# Prints the path of the first candidate whose version is from LOWEST to HIGHEST, both as in 3.11. Empty
# candidates are left out: a variable that names a Python may not be set.
find_python() {
    local lowest=${1/./, } highest=${2/./, } candidate
    for candidate in "${@:3}"; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        # pyenv's shims on PATH fail if their version is not installed.
        if "$candidate" -c "import sys; sys.exit(not ($lowest) <= sys.version_info[:2] <= ($highest))" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}
