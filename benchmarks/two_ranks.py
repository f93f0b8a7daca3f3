"""Train on two real Horovod ranks, for benchmarks that do so under several conditions."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAINING = ROOT / ".venv-horovod"


def arguments(description: str | None, steps: int) -> argparse.Namespace:
    """Read the command line: ``out``, ``steps`` and ``keep``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the Markdown")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--keep", type=Path, help="a folder for what the trainings write")
    return parser.parse_args()


@contextmanager
def folder_for(keep: Path | None) -> Iterator[Path]:
    """Return the folder to keep, or else a temporary one."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def train(program: Path, folder: Path, options: Sequence[str]) -> None:
    """Run a training program on two ranks; it writes into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    done = subprocess.run(
        [
            *("horovodrun", "--disable-cache", "-np", "2", "--start-timeout", "300"),
            *("python", str(program), str(folder), *options),
        ],
        env=kept
        | {"PATH": f"{TRAINING / 'bin'}:{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the training failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def write(path: Path, text: str) -> None:
    """Write a result, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
