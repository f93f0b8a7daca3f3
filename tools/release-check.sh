#!/usr/bin/env bash
# Build a release into dist/, and check it as users install it.
#
#     tools/release-check.sh VENV
#
# The wheel is built from the sdist. It is installed twice, into temporary environments: without extras,
# on the oldest Python available, as on workers; and with the app, which then runs its demo.
# REPOSITORY_URL, or what GitHub Actions call the repository, is named in the package's links.
set -euo pipefail

venv=${1:?usage: tools/release-check.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")

fail() { echo "release-check: $*" >&2; exit 1; }
. "$here/find-python.sh"

# Runs in an empty folder, where nothing of the source tree is imported.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

app_python=$(find_python 3.11 3.99 "${PYTHON:-}" python3 python3.13 python3.12 python3.11) ||
    fail "the app needs Python 3.11 or later, and none was found; name one: PYTHON=/path/to/python3.11"
pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
worker_python=$(find_python 3.8 3.8 python3.8 "$pyenv"/3.8.*/bin/python) || worker_python=$app_python

[ -x "$venv/bin/python" ] || "$app_python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check install --quiet --requirement "$here/release-requirements.txt"

url=${REPOSITORY_URL:-${GITHUB_REPOSITORY:+${GITHUB_SERVER_URL:-https://github.com}/$GITHUB_REPOSITORY}}
source=$root
if [ -n "$url" ]; then
    source=$work/source
    mkdir "$source"
    git -C "$root" ls-files -z | tar -C "$root" --null --files-from - -c | tar -C "$source" -x
    "$app_python" "$here/release_links.py" "$source" "$url"
else
    echo "release-check: no REPOSITORY_URL: the package has no links to its repository"
fi

echo "release-check: building sdist and wheel"
rm -rf "$root/dist"
"$venv/bin/python" -m build --outdir "$root/dist" "$source" >"$work/build.log" 2>&1 ||
    { tail -40 "$work/build.log" >&2; fail "building failed; the last lines are above"; }
"$venv/bin/python" -m twine check --strict "$root"/dist/*
"$venv/bin/python" "$here/release_contents.py" "$root"/dist/*.tar.gz "$root"/dist/*.whl $url
wheel=$(ls "$root"/dist/*.whl)

install() { # ENVIRONMENT PYTHON REQUIREMENT
    "$2" -m venv "$work/$1"
    "$work/$1/bin/python" -m pip --disable-pip-version-check install --quiet "$3"
}

echo "release-check: without extras, on $("$worker_python" --version)"
install worker "$worker_python" "$wheel"
(cd "$work" && worker/bin/python "$here/release_imports.py" worker)

echo "release-check: with the app, on $("$app_python" --version)"
install app "$app_python" "$wheel[app]"
cd "$work"
app/bin/python "$here/release_imports.py" app
app/bin/stallscope demo --no-serve >demo.txt
sample=$(app/bin/python -c 'import stallscope.sample_logs as logs; print(logs.__path__[0])')/slow-input-one-rank
app/bin/stallscope report "$sample" >report.txt
grep -q "rank 1" report.txt || { cat report.txt >&2; fail "the report on a sample run does not name its slow rank"; }
[ "$(ls reports/demo/*.html | wc -l)" -ge 8 ] || fail "the demo has not written its reports"
echo "release-check: $(cd "$root/dist" && echo *) can be released"
