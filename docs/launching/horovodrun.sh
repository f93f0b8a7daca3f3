#!/usr/bin/env bash
# Train with horovodrun, which starts the ranks over ssh. HOSTFILE has lines like "host1 slots=2".
#
#     horovodrun.sh RANKS HOSTFILE LOGS
set -euo pipefail
here=$(dirname "$0")

horovodrun --gloo --network-interfaces eth0 -np "$1" --hostfile "$2" \
    python "$here/train_horovod.py" "$3"
