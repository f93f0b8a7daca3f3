"""Files are written whole or not at all, and overwritten only on request."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest
import simulator

from stallscope.errors import UnwritableError, UsageError, WouldOverwriteError
from stallscope.exports import export_formats
from stallscope.exports.export_formats import write_export
from stallscope.exports.exported_run import ExportedRun, Selection, exported_run


@pytest.fixture(scope="module")
def exported() -> ExportedRun:
    return exported_run(simulator.simulate(simulator.Job(ranks=2, steps=20)).run, Selection())


def _write_half(exported: ExportedRun, file: BinaryIO) -> None:
    file.write(b"half of it")
    raise OSError(28, "No space left on device")


def test_folders_are_made_and_nothing_is_overwritten(exported: ExportedRun, tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.csv"
    csv = export_formats.by_name("csv")
    write_export(csv, exported, path)
    before = path.read_bytes()
    with pytest.raises(WouldOverwriteError, match="add --force"):
        write_export(csv, exported, path)
    write_export(csv, exported, path, force=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_a_full_disk_leaves_the_old_file(name: str, exported: ExportedRun, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(UnwritableError, match="No space left on device"):
        write_export(export_formats.Export("broken", _write_half), exported, path, force=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_bad_paths_are_an_error_of_one_sentence(exported: ExportedRun, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="compressed already"):
        write_export(export_formats.by_name("parquet"), exported, tmp_path / "out.parquet.gz")
    with pytest.raises(UsageError, match="this is a folder"):
        write_export(export_formats.by_name("csv"), exported, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableError, match="cannot be written here"):
        write_export(export_formats.by_name("csv"), exported, tmp_path / "file" / "out.csv")
