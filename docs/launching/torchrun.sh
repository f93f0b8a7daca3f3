#!/usr/bin/env bash
# Train with torchrun. Start this on every host of the job:
#
#     torchrun.sh HOSTS FIRST-HOST LOGS
set -euo pipefail
here=$(dirname "$0")

torchrun --nnodes "$1" --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "$2:29400" \
    --rdzv-id run-42 "$here/train.py" "$3"
