"""Start a program of this folder as ranks of PyTorch, as torchrun does: two, or ``RANKS``.

python two_ranks.py PROGRAM [WORD …]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torch.distributed.run import main as torchrun

if __name__ == "__main__":
    program, *words = sys.argv[1:]
    ranks = f"--nproc-per-node={os.environ.get('RANKS', '2')}"
    torchrun([ranks, "--standalone", str(Path(__file__).parent / program), *words])
