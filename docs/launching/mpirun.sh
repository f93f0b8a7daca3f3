#!/usr/bin/env bash
# Train with Open MPI's mpirun, which starts the ranks over ssh. HOSTFILE has lines like "host1 slots=2".
#
#     mpirun.sh HOSTFILE LOGS
set -euo pipefail
here=$(dirname "$0")
read -r MASTER_ADDR _ <"$1"
export MASTER_ADDR MASTER_PORT=29500

# PyTorch knows its own variables only.
mpirun --hostfile "$1" --map-by slot --bind-to none -x PATH -x MASTER_ADDR -x MASTER_PORT \
    bash -c 'RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE \
        LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK exec python "$0" "$1"' "$here/train.py" "$2"
