"""Local folders: patterns, links, and special files."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.step_logs import Job, write_job

from stallscope.catalogue.collecting import collect
from stallscope.collector.source_kinds import open_source
from stallscope.collector.store.fetch import fetch
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.opening import open_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("run-a/rank-0.csv", "run-a/deep/rank-1.csv", "run-b/rank-0.csv"):
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "logs"


def names(text: str) -> list[str]:
    return [file.name for file in open_source(text).files()]


def test_a_folder_is_everything_below_it(folder: Path) -> None:
    everything = ["run-a/deep/rank-1.csv", "run-a/rank-0.csv", "run-b/rank-0.csv"]
    assert names(str(folder)) == everything
    assert names(folder.as_uri()) == everything
    assert names(f"{folder}/run-a/rank-0.csv") == ["rank-0.csv"]


@pytest.mark.parametrize("text", ["{}", "{}/", "logs", "./logs", "logs/run-a/../", "."])
def test_local_files_are_listed_and_read_as_fsspec_does(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder / "link.csv").symlink_to(folder / "run-b" / "rank-0.csv")
    here, by_fsspec = (
        open_source(place).files()
        for place in (text.format(folder), (folder.parent / text.format(folder)).as_uri())
    )
    assert len(here) == 4
    for file, expected in zip(here, by_fsspec, strict=True):
        assert (file.name, file.size, file.version) == (
            expected.name,
            expected.size,
            expected.version,
        )
        assert file.modified_ns == expected.modified_ns
        assert file.read() == expected.read()
        assert file.read(2, 5) == expected.read(2, 5)


def test_files_in_memory_are_read_in_place(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    write_job(tmp_path / "logs", Job(ranks=2, steps=40))
    for path in (tmp_path / "logs").iterdir():
        memory.pipe_file(f"/run-m/{path.name}", path.read_bytes())
    try:
        place = open_source("memory://run-m")
        assert place.local
        assert [file.name for file in place.files()] == names(str(tmp_path / "logs"))
        here = open_run(str(tmp_path / "logs"))
        assert open_run("memory://run-m").steps.equals(here.steps)
        ((run, _),) = collect([place], tmp_path / "store").runs
        assert run.steps.equals(here.steps)
    finally:
        memory.rm("/run-m", recursive=True)


def test_patterns_name_files_and_folders(folder: Path) -> None:
    assert names(f"{folder}/run-?") == names(str(folder))
    assert names(f"{folder}/*/rank-0.csv") == ["run-a/rank-0.csv", "run-b/rank-0.csv"]
    assert names(f"{folder}/**/rank-1.csv") == ["run-a/deep/rank-1.csv"]
    assert names(f"{folder}/run-[b]") == ["run-b/rank-0.csv"]
    with pytest.raises(NotFoundError, match="nothing matches"):
        names(f"{folder}/run-[c]")


def test_an_existing_name_is_preferred_to_a_pattern(folder: Path) -> None:
    (folder / "run-[a]").mkdir()
    (folder / "run-[a]" / "own.csv").touch()
    assert names(f"{folder}/run-[a]") == ["own.csv"]


def test_links_to_files_are_files_and_other_links_are_not(folder: Path) -> None:
    run = folder / "run-b"
    (run / "link.csv").symlink_to("rank-0.csv")
    (run / "nowhere.csv").symlink_to("nothing")
    (run / "circle").symlink_to("circle")
    (run / "again").symlink_to("../run-b")
    os.mkfifo(run / "pipe.csv")
    (run / "link-to-pipe.csv").symlink_to("pipe.csv")
    files = {file.name: file for file in open_source(str(run)).files()}
    assert sorted(files) == ["link-to-pipe.csv", "link.csv", "pipe.csv", "rank-0.csv"]
    assert files["link.csv"].read() == b"run-b/rank-0.csv"
    assert files["link.csv"].size == len(b"run-b/rank-0.csv")
    assert names(f"{run}/*.csv") == sorted(files)
    for name in ("pipe.csv", "link-to-pipe.csv"):
        with pytest.raises(
            UnreadableError, match=f"/{name}: cannot be read: this is a pipe, not a"
        ):
            files[name].read()


def test_a_pipe_that_is_named_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UnreadableError, match=r"pipe\.csv: this is a pipe, not a file; write"):
        names(str(tmp_path / "pipe.csv"))


def test_sockets_and_devices_are_named_and_not_opened(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(folder / "run-b", os.O_RDONLY)
        # Names of sockets must be short.
        listening.bind(f"/proc/self/fd/{here}/agent")
        os.close(here)
        (folder / "run-b" / "null.csv").symlink_to("/dev/null")
        problems = {file.name: file.problem for file in open_source(str(folder / "run-b")).files()}
    assert problems == {
        "agent": "this is a socket, not a file",
        "null.csv": "this is a device, not a file",
        "rank-0.csv": "",
    }


def test_a_link_to_a_folder_can_be_named(folder: Path) -> None:
    (folder / "latest").symlink_to("run-b")
    assert names(f"{folder}/latest") == ["rank-0.csv"]
    assert names(f"{folder}/lat*") == ["latest/rank-0.csv"]


def test_an_unreadable_folder_is_not_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, folder / "run-a" / "deep", PermissionError(13, "Permission denied", "deep"))
    assert names(str(folder)) == ["run-a/deep/", "run-a/rank-0.csv", "run-b/rank-0.csv"]
    deep = open_source(str(folder)).files()[0]
    with pytest.raises(UnreadableError, match="run-a/deep/: cannot be read: Permission denied"):
        deep.read()
    # A pattern does not hide it, and naming the folder itself is an error.
    assert "run-a/deep/" in names(f"{folder}/run-?")
    with pytest.raises(UnreadableError, match="deep: cannot be opened: Permission denied"):
        names(str(folder / "run-a" / "deep"))


def test_copies_of_a_place_keep_what_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "run-b" / "pipe.csv")
    copied = fetch(open_source(str(folder / "run-b")), tmp_path / "store").files()
    assert [(file.name, file.problem) for file in copied] == [
        ("pipe.csv", "this is a pipe, not a file"),
        ("rank-0.csv", ""),
    ]
    assert copied[1].read() == b"run-b/rank-0.csv"


def test_a_folder_deleted_while_it_is_listed_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, folder / "run-a" / "deep", FileNotFoundError(2, "No such file"))
    assert names(str(folder)) == ["run-a/rank-0.csv", "run-b/rank-0.csv"]


def refuse(monkeypatch: pytest.MonkeyPatch, folder: Path, error: OSError) -> None:
    """Refuse to list one folder; permissions would not stop root, who may run the tests."""
    scandir = os.scandir

    @contextmanager
    def refusing(path: str) -> Iterator[Any]:
        if Path(path) == folder:
            raise error
        with scandir(path) as entries:
            yield entries

    monkeypatch.setattr("fsspec.implementations.local.os.scandir", refusing)
