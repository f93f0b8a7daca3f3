"""Train on two real Horovod ranks, for benchmarks that compare several conditions."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peers import TRAINING, output_of


def arguments(description: str | None, steps: int) -> argparse.Namespace:
    """Read the command line: ``out``, ``steps`` and ``keep``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the Markdown")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--keep", type=Path, help="folder for the files of the trainings")
    return parser.parse_args()


@contextmanager
def folder_for(keep: Path | None) -> Iterator[Path]:
    """Yield the folder to keep, or else a temporary one."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def train(program: Path, folder: Path, options: Sequence[str]) -> None:
    """Run a training program on two ranks; it writes into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    launcher = ["horovodrun", "--disable-cache", "-np", "2", "--start-timeout", "300"]
    words = ["python", str(program), str(folder), *options]
    output_of([*launcher, *words], TRAINING, {"TF_CPP_MIN_LOG_LEVEL": "2"})


def write(path: Path, text: str) -> None:
    """Write a result, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
