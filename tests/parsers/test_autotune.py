"""Autotune logs of several versions: settled, still tuning, torn, foreign."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stallscope.collector.source_kinds import open_source
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers.files.unpacking import beginning
from stallscope.parsers.formats.autotune import is_autotune_log, parse_autotune, read_autotune

HEADER = (
    b"hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
    b"cycle_time_ms,tensor_fusion_threshold,score\n"
)
# From a run of Horovod 0.28.1 on two ranks that tuned to its end, with HOROVOD_CYCLE_TIME=1; most
# of the samples are left out.
REAL = (
    HEADER
    + b"""\
0,0,0, 0,1,4,6.60551
0,0,0, 0,1,32,9.625
0,0,0, 0,1,25.736,30.8562
0,0,0, 0,1,61.2542,5.20242
0,1,0, 0,1,4,8.79336
0,1,0, 0,1,4,7.29655
0,0,0, 1,1,17.2694,24.8326
0,1,0, 1,1,1.69578,12.9612
0,0,0, 0,1,25.736,30.8562
"""
)


def test_a_real_log_has_converged_on_its_best_setting() -> None:
    log = parse_autotune("autotune.csv", REAL)
    assert len(log.samples) == 8
    assert log.torn == 0
    assert log.settled is not None
    assert log.best == log.settled == log.samples[2]
    assert (log.settled.cycle_time_ms, log.settled.fusion_mib) == (1, 25.736)
    assert log.settled.score == 30.8562
    assert log.settled.environment == (
        "HOROVOD_FUSION_THRESHOLD=26986151",
        "HOROVOD_CYCLE_TIME=1",
        "HOROVOD_HIERARCHICAL_ALLREDUCE=0",
        "HOROVOD_HIERARCHICAL_ALLGATHER=0",
        "HOROVOD_TORUS_ALLREDUCE=0",
        "HOROVOD_CACHE_CAPACITY=0",
    )


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(REAL),
        b"\xef\xbb\xbf" + REAL,
        REAL.decode().replace("\n", "\r\n").encode("utf-16"),
    ],
    ids=["gzip", "marked", "utf-16"],
)
def test_changes_by_editors_and_archives_do_not_matter(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "autotune.csv"
    path.write_bytes(data)
    (file,) = open_source(str(path)).files()
    assert is_autotune_log(beginning(file, 4096))
    assert read_autotune(path) == parse_autotune("log", REAL)


@pytest.mark.parametrize("lines", range(10))
def test_before_the_last_line_it_is_still_tuning(lines: int) -> None:
    data = b"".join(REAL.splitlines(keepends=True)[:lines])
    if not lines:
        assert not is_autotune_log(data)
        return
    log = parse_autotune("log", data)
    # A setting that was tried twice, with another score, is not an end.
    assert log.settled is None
    assert len(log.samples) == lines - 1
    scores = [sample.score for sample in log.samples]
    assert (log.best.score if log.best else None) == max(scores, default=None)


def test_a_cut_last_line_is_torn_and_not_an_end() -> None:
    for cut in range(1, len(b"0,0,0, 0,1,25.736,30.8562\n") + 1):
        log = parse_autotune("log", REAL[:-cut])
        assert log.settled is None
        assert len(log.samples) == 8
        assert log.torn == (cut < 26)


def test_a_last_line_without_the_space_of_the_others_is_the_best() -> None:
    rows = b"0,0,0, 1,5,4,1.5\n0,0,0, 1,50,32,2.5\n0,0,0,1,50,32,2.75\n"
    log = parse_autotune("log", HEADER + rows)
    assert log.settled is not None
    assert log.settled.score == 2.75
    assert len(log.samples) == 2
    assert "HOROVOD_CACHE_CAPACITY=1024" in log.settled.environment


def test_columns_of_older_versions_are_read_by_name() -> None:
    data = (
        b"hierarchical_allreduce,hierarchical_allgather,cycle_time_ms,tensor_fusion_threshold,score\n"
        b"0,1,5,4,10\n1,0,50,32,20.5\n1,0,50,32,20.5\n"
    )
    log = parse_autotune("log", data)
    assert log.settled == log.samples[1]
    assert dict(log.samples[0].switches) == {
        "hierarchical_allreduce": False,
        "hierarchical_allgather": True,
    }
    assert log.samples[1].environment[0] == "HOROVOD_FUSION_THRESHOLD=33554432"


def test_invalid_lines_are_counted_and_left_out() -> None:
    bad = (
        b"0,0,0, 1,5\nx,0,0, 1,5,4,1\n0,0,0, 1,5,4,nan\n0,0,0, 1,5,-4,1\n7,0,0, 1,5,4,1\n\xff\0\n\n"
    )
    log = parse_autotune("log", HEADER + bad + b"0,0,0, 1,5,4,3\r\n")
    assert [sample.score for sample in log.samples] == [3]
    assert log.torn == 6


def test_other_files_are_not_autotune_logs(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b,score\n1,2,3\n")
    assert not is_autotune_log(path.read_bytes())
    with pytest.raises(UnreadableError, match="not an autotune log"):
        read_autotune(path)
    with pytest.raises(NotFoundError, match="no such file"):
        read_autotune(tmp_path / "none.csv")
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_autotune(tmp_path)
    empty = parse_autotune("log", HEADER)
    assert (empty.samples, empty.best) == ((), None)
