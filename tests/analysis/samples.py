"""Analyses of the bundled sample runs."""

from __future__ import annotations

from pathlib import Path

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

_FOLDER = Path(__file__).parents[2] / "sample_logs"
#: Their names.
SAMPLES = sorted(path.name for path in _FOLDER.iterdir() if (path / "run.json").exists())


def sample(name: str, baseline: str | None = None) -> Analysis:
    """Analyse a sample run, against another one as its baseline if that is named."""
    base = None if baseline is None else read(str(_FOLDER / baseline))[0]
    return analyse(read(str(_FOLDER / name))[0], base)
