"""Executors date files like one machine."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path

from stallscope.collector.sources.source import SourceFile
from stallscope.parsers import read
from stallscope.spark import parsing

# 1 September 2019: the lines have no year.
CHANGED_S = 1_567_316_280


def test_a_compressed_log_has_the_year_of_its_header(tmp_path: Path) -> None:
    lines = "".join(
        f"I0901 00:19:{at:02}.000000 47 keras_utils.py:93] step = {at}, time_taken = 1.000000\n"
        for at in range(9)
    )
    path = tmp_path / "out.log.gz"
    path.write_bytes(gzip.compress(lines.encode(), mtime=CHANGED_S))
    bytes_of = partial(parsing._bytes_of, str(path))
    file = SourceFile(path.name, str(path), path.stat().st_size, "", bytes_of)
    ((_, result),) = parsing._read(parsing._Task([0], [file], None, str(tmp_path)))
    ((_, log),) = result.reading.epochs_only
    (run,) = read(str(path))
    assert log.log.facts["began_local"] == run.fact("began_local")
    assert run.fact("began_local").startswith("2019-09-01")
