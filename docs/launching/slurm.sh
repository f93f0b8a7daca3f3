#!/usr/bin/env bash
#SBATCH --job-name=run-42
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%j.out
# Train under Slurm. Submit this in the folder of train.py; LOGS is a folder on every node's own disk.
#
#     sbatch slurm.sh LOGS
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=29500

# PyTorch knows its own variables only.
status=0
srun --label bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID \
    exec python "$0" "$1"' "$SLURM_SUBMIT_DIR/train.py" "$1" || status=$?

# Nodes may not be reached once the job has ended, and their disks may be cleared.
gathered=$SLURM_SUBMIT_DIR/logs-$SLURM_JOB_ID
mkdir -p "$gathered"
srun --ntasks-per-node=1 bash -c 'cp -r "$0" "$1/$SLURMD_NODENAME"' "$1" "$gathered"
exit "$status"
