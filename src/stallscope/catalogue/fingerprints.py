"""Identify the state of a place's files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from stallscope import __version__
from stallscope.collector.sources.source import SourceFile


def fingerprint(files: Sequence[SourceFile], read_as: str | None) -> str:
    """Return a fingerprint of the files and of the version of Stallscope, which may read more."""
    content = [__version__, read_as, [(file.name, file.size, file.version) for file in files]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
