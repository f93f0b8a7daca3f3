#!/usr/bin/env bash
# Add Spark to the training side, for horovod.spark's jobs, and Petastorm, which feeds them.
#
#     tools/spark-env.sh VENV
#
# VENV is tools/training-env.sh's, so that executors and driver have the same Python. No installed package
# changes its version: Spark itself adds py4j only, horovod.spark needs a pyarrow built for numpy 1, and
# Petastorm one before 15. Petastorm also requires a setuptools that conflicts with torch, but works without
# it: so its dependencies are listed here.
set -euo pipefail

venv=${1:?usage: tools/spark-env.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
# The version that horovod.spark 0.28.1 works with and notebook runtimes have.
packages=("pyspark==3.5.*" "pyarrow==14.0.2" dill diskcache fsspec future pandas pyzmq six)
petastorm="petastorm==0.13.1"

. "$here/installing.sh"
fail() { echo "spark-env: $*" >&2; exit 1; }

[ -f "$venv/.ready" ] || fail "$venv is not there yet: tools/training-env.sh $venv"
stamp="${packages[*]} $petastorm"
if [ -f "$venv/.ready-spark" ] && [ "$(cat "$venv/.ready-spark")" = "$stamp" ]; then
    exit 0
fi
command -v java >/dev/null || "$here/system-packages.sh" default-jre-headless
command -v java >/dev/null || fail "Spark needs Java: apt-get install default-jre-headless"
kept=$(mktemp)
trap 'rm -f "$kept"' EXIT
installed "$venv" >"$kept"
install "$venv" --constraint "$kept" "${packages[@]}"
install "$venv" --no-deps "$petastorm"
echo "$stamp" >"$venv/.ready-spark"
echo "spark-env: Spark and Petastorm are in $venv"
