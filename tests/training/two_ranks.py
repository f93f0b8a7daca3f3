"""Start a program of this folder as two ranks of PyTorch, as torchrun does.

python two_ranks.py PROGRAM [WORD …]
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch.distributed.run import main as torchrun

if __name__ == "__main__":
    program, *words = sys.argv[1:]
    torchrun(["--nproc-per-node=2", "--standalone", str(Path(__file__).parent / program), *words])
