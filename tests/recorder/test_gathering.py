"""Gather the logs of ranks that share no folder over a collective (here: a queue per rank)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE_SECONDS

from stallscope.collector.recorder.gathering import gather
from stallscope.collector.recorder.job.world import World


def everywhere(size: int, act: Callable[[int, Callable[[Any, int], Any]], None]) -> None:
    """Run an action on several ranks at once, with a broadcast between them."""
    sent: dict[int, Any] = {}
    barrier = threading.Barrier(size, timeout=PATIENCE_SECONDS)
    failed: list[BaseException] = []

    def rank(number: int) -> None:
        def broadcast(value: Any, root: int) -> Any:
            if number == root:
                sent[root] = value
            barrier.wait()
            return sent[root]

        try:
            act(number, broadcast)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def gathered(tmp_path: Path, size: int = 3) -> list[list[Path]]:
    """Return each rank's result of the gathering."""
    logs: list[list[Path]] = [[] for _ in range(size)]

    def act(rank: int, broadcast: Callable[[Any, int], Any]) -> None:
        logs[rank] = gather(tmp_path / f"host-{rank}", World(rank, size, 0), broadcast)

    everywhere(size, act)
    return logs


def write(path: Path, content: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)


def test_all_logs_come_to_the_first_rank_and_only_once(tmp_path: Path) -> None:
    write(tmp_path / "host-0" / "rank-00000.0.0.steps.csv", "zero")
    write(tmp_path / "host-1" / "rank-00001.0.0.steps.csv", "one")
    write(tmp_path / "host-1" / "rank-00001.0.1.steps.csv", "more")
    write(tmp_path / "host-2" / "rank-00002.0.0.steps.csv", "two")
    write(tmp_path / "host-2" / "rank-00002.0.input.json", "{}")
    first, *others = gathered(tmp_path)
    names = [f"rank-{n}" for n in ("00001.0.0.steps.csv", "00001.0.1.steps.csv")]
    names += [f"rank-00002.0.{n}" for n in ("0.steps.csv", "input.json")]
    assert [path.name for path in first] == names
    assert others == [[], []]
    assert (tmp_path / "host-0" / "rank-00001.0.1.steps.csv").read_text() == "more"
    assert gathered(tmp_path) == [[], [], []]


def test_existing_logs_are_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "host-0" / "rank-00001.0.0.steps.csv", "of another job")
    write(tmp_path / "host-1" / "rank-00001.0.0.steps.csv", "one")
    first, *_ = gathered(tmp_path)
    assert [path.name for path in first] == ["rank-00001.0.1.steps.csv"]
    assert (tmp_path / "host-0" / "rank-00001.0.0.steps.csv").read_text() == "of another job"
    assert first[0].read_text() == "one"


def test_only_a_ranks_own_logs_are_gathered_and_written_inside_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "host-1" / "rank-00002.0.0.steps.csv", "of another rank")
    write(tmp_path / "host-1" / "rank-00001.notes.txt", "no log")
    assert gathered(tmp_path) == [[], [], []]

    def hostile(rank: int, broadcast: Callable[[Any, int], Any]) -> None:
        names = [
            "../rank-00001.0.0.steps.csv",
            "/etc/passwd",
            "rank-00002.0.0.steps.csv",
            "rank-00001",
        ]
        if rank:
            broadcast(dict.fromkeys(names, b"x"), 1)
        else:
            gather(tmp_path / "host-0", World(0, 2, 0), broadcast)

    with caplog.at_level(logging.WARNING):
        everywhere(2, hostile)
    assert len([message for message in caplog.messages if "is not gathered" in message]) == 4
    assert not list(tmp_path.glob("**/host-0/*"))


def test_an_unreadable_log_blocks_no_rank(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "host-1" / "rank-00001.0.0.steps.csv").mkdir(parents=True)
    write(tmp_path / "host-2" / "rank-00002.0.0.steps.csv", "two")
    with caplog.at_level(logging.WARNING):
        first, *_ = gathered(tmp_path)
    assert [path.name for path in first] == ["rank-00002.0.0.steps.csv"]
    (message,) = caplog.messages
    assert "rank-00001.0.0.steps.csv is not gathered" in message


def test_a_single_process_has_nothing_to_gather(tmp_path: Path) -> None:
    assert (
        gather(tmp_path, World(0, 1, None), lambda value, root: pytest.fail("a collective")) == []
    )
