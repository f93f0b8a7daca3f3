#!/usr/bin/env bash
# Record sample_logs/ again: eight short trainings of one model on real Horovod.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

record() { # record NAME RANKS OPTION…
    local name=$1 ranks=$2
    shift 2
    echo "recording $name on $ranks rank(s)"
    # A clean environment: the recording machine's other settings must not leak.
    env -i HOME="$HOME" PATH="$root/.venv-horovod/bin:/usr/bin:/bin" TF_CPP_MIN_LOG_LEVEL=2 \
        horovodrun --disable-cache -np "$ranks" -H "localhost:$ranks" \
        python "$root/tools/samples/train.py" "$new/$name" --name "$name" "$@" \
        >"$new/$name.out" 2>&1 || { cat "$new/$name.out" >&2; exit 1; }
}

record clean 2
record synthetic 2 --synthetic
record slow-input-one-rank 2 --fault slow-input-one-rank
record slow-input-all-ranks 2 --fault slow-input-all-ranks
record slow-compute-rank 2 --fault slow-compute-rank
record busy-rank-0 2 --fault busy-rank-0
record ranks-1 1
record ranks-4 4

# Replace nothing before all of them exist.
for folder in "$new"/*/; do
    name=$(basename "$folder")
    mkdir -p "$root/sample_logs/$name"
    rm -f "$root/sample_logs/$name"/*.steps.csv "$root/sample_logs/$name"/run*.json
    cp "$folder"/* "$root/sample_logs/$name/"
done
du -sh "$root/sample_logs"
