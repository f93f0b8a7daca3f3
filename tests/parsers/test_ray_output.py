"""Lines of Ray's workers, whose labels name processes: the controller's lines tell their ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.parsers import read
from stallscope.parsers.launcher_output import labels_of, may_contain, output_by_rank
from stallscope.parsers.rank_names import labelled_ranks

COLOURED = b"\x1b[36m(%b)\x1b[0m "
PLAIN = b"(%b) "


def worker(pid: int, address: str = "", colours: bool = True) -> bytes:
    """Return the label of a worker; those of the driver's host have no address."""
    name = b"RayTrainWorker pid=%d" % pid
    name += b", ip=%b" % address.encode() if address else b""
    return (COLOURED if colours else PLAIN) % name


def started(*workers: tuple[str, int]) -> bytes:
    """Return what the controller prints about workers that it starts, by rank: address and process."""
    label = COLOURED % b"TrainController pid=9"
    lines = [b"Started training worker group of size %d: " % len(workers)]
    lines += [
        b"- (ip=%b, pid=%d) world_rank=%d, local_rank=0, node_rank=0"
        % (address.encode(), pid, rank)
        for rank, (address, pid) in enumerate(workers)
    ]
    return b"".join(label + line + b"\n" for line in lines)


def test_the_controllers_lines_tell_the_ranks_of_processes() -> None:
    printed = started(("10.0.0.1", 72), ("10.0.0.2", 71))
    printed += worker(72) + b"one\n" + worker(71, "10.0.0.2", colours=False) + b"two\n"
    # After a failure there are other processes.
    printed += started(("10.0.0.2", 80), ("10.0.0.1", 81))
    printed += worker(81) + b"four\nthe driver's own\n" + worker(80, "10.0.0.2") + b"three\n"
    ranks = output_by_rank(printed)
    assert ranks[0, ""] == b"one\nthree\n"
    assert ranks[1, ""] == b"two\nfour\n"
    assert b"the driver's own\n" in ranks[None, ""]
    assert b"pid=9" not in ranks[None, ""]


def test_processes_on_other_hosts_without_a_rank_break_nothing() -> None:
    printed = worker(1611, "172.26.135.50") + b"one\n" + worker(1606, "172.26.135.50") + b"two\n"
    assert not labelled_ranks(printed * 50)


def test_older_versions_name_the_node_as_well() -> None:
    printed = (
        b"(TorchTrainer pid=9) - (node_id=5d51, ip=10.0.0.1, pid=72) world_rank=3, local_rank=0\n"
    )
    assert output_by_rank(printed + worker(72) + b"one\n")[3, ""] == b"one\n"


def test_lightnings_lines_tell_the_ranks_of_processes() -> None:
    start = b"GLOBAL_RANK: %d, MEMBER: 1/2\n"
    printed = worker(72) + start % 1 + worker(71, "10.0.0.2") + start % 0
    printed += worker(72) + b"one\n" + worker(71, "10.0.0.2") + b"zero\n"
    ranks = output_by_rank(printed)
    assert ranks[0, ""].endswith(b"zero\n")
    assert ranks[1, ""].endswith(b"one\n")


def test_processes_with_one_number_on_two_hosts_are_told_apart_by_their_addresses_only() -> None:
    printed = started(("10.0.0.1", 7), ("10.0.0.2", 7))
    printed += worker(7) + b"whose?\n" + worker(7, "10.0.0.2") + b"two\n"
    ranks = output_by_rank(printed)
    assert ranks[1, ""] == b"two\n"
    assert b"whose?\n" in ranks[None, ""]


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        (worker(71) + b"a\n", "Ray"),
        (b"a driver's line\n" * 9 + worker(71, "fe80::1", colours=False) + b"a\n", "Ray"),
        (b"(pid=71) a\n", "Ray"),
        (b"a list (with pid=71) of\nprocesses (pid 72) \n", None),
    ],
)
def test_labels_are_recognised(text: bytes, launcher: str | None) -> None:
    labels = labels_of(text)
    assert (None if labels is None else labels.launcher) == launcher


def test_lines_are_never_cut() -> None:
    printed = started(("10.0.0.1", 72)) + worker(72) + b"stallsc\n" + worker(72) + b"ope:1:\n"
    assert not may_contain(printed, b"stallscope:1:")
    long = worker(72) + b"x" * 1024 + b"\n"
    assert output_by_rank(printed + long * 2)[0, ""].endswith((b"x" * 1024 + b"\n") * 2)


def test_epochs_and_records_are_read_with_their_ranks(tmp_path: Path) -> None:
    header = started(("10.0.0.1", 100), ("10.0.0.1", 101))
    epochs = b"".join(
        worker(100 + rank)
        + b"Epoch %d/2\n" % epoch
        + worker(100 + rank)
        + b"5/5 - 3s - loss: 1.0 - 700ms/step\n"
        for epoch in (1, 2)
        for rank in (0, 1)
    )
    (tmp_path / "epochs.txt").write_bytes(header + epochs)
    (run,) = read(str(tmp_path / "epochs.txt"))
    assert run.ranks == [0, 1]
    write_job(tmp_path / "original", Job(ranks=2, steps=60))
    for rank, path in enumerate(sorted((tmp_path / "original").glob("*.steps.csv"))):
        data = path.read_bytes()
        key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
        for line in records(key, name, 0, data):
            header += worker(100 + rank) + line.encode() + b"\n"
    (tmp_path / "records.txt").write_bytes(header)
    (run,) = read(str(tmp_path / "records.txt"))
    assert run.steps.equals(read(str(tmp_path / "original"))[0].steps)
