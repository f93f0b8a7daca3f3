# Finds a Python for an environment; the scripts beside it source this file.
#
#     python=$(find_python LOWEST HIGHEST CANDIDATE…) || …
#
# Prints the path of the first candidate whose version is from LOWEST to HIGHEST, both as in 3.11. Empty
# candidates are left out: a variable that names a Python may not be set.
find_python() {
    local lowest=${1/./, } highest=${2/./, } candidate
    for candidate in "${@:3}"; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        # pyenv puts names on PATH that only say that they are not there.
        if "$candidate" -c "import sys; sys.exit(not ($lowest) <= sys.version_info[:2] <= ($highest))" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}
