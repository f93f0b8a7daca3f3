"""Cells and files at URLs are the same as in folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stallscope.errors import UnreadableError, UnwritableError
from stallscope.spark.spark_cells import write_cells
from stallscope.spark.storage import new_file, remove, rows_of


@pytest.fixture(params=["folder", "URL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    # fsspec's own file system in memory: executors and driver are this process here.
    return str(tmp_path) if request.param == "folder" else f"memory://{tmp_path.name}"


@pytest.mark.parametrize("rank_by_rank", [True, False])
def test_any_part_of_cells_is_read(place: str, rank_by_rank: bool) -> None:
    cells = np.arange(7 * 5, dtype=np.int64).reshape(7, 5)
    (file,) = write_cells(cells, place, 10, 20, rank_by_rank=rank_by_rank)
    for steps, ranks in (((0, 7), [0, 1, 2, 3, 4]), ((2, 5), [3, 1]), ((6, 7), [4]), ((0, 1), [0])):
        part = file.read(slice(steps[0] + 10, steps[1] + 10), np.array(ranks) + 20)
        assert part.tolist() == cells[steps[0] : steps[1], ranks].tolist()


def test_tables_are_read_until_they_are_removed(place: str) -> None:
    folder = f"{place}/.stallscope-spark-abcdefgh"
    Path(folder).mkdir(parents=True) if "://" not in place else None
    paths = [f"{folder}/{number}.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        with new_file(path) as file:
            pq.write_table(pa.table({"step": [number, number + 10]}), file)
    assert rows_of(paths)["step"].to_pylist() == [0, 10, 1, 11]
    remove(folder)
    # At a URL the error is one sentence.
    with pytest.raises(UnreadableError if "://" in place else FileNotFoundError):
        rows_of(paths)
    remove(folder)


@pytest.mark.extras
def test_the_error_of_an_unwritable_url_is_one_sentence_without_its_secret() -> None:
    url = "http://user:secret@127.0.0.1:9/x/y"
    with pytest.raises(UnwritableError) as raised, new_file(url):
        pass
    assert str(raised.value).startswith("http://user@127.0.0.1:9/x: an executor of Spark cannot")
