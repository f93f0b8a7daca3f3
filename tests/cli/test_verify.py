"""``stallscope verify`` as a user types it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import Commands

from stallscope.cli import progress_bars
from stallscope.collector.store.layout import MANIFEST
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run


def test_an_undamaged_store_is_ok(at_store: Commands) -> None:
    status, out, errors = at_store("verify", "store")
    assert (status, errors) == (0, "")
    assert [line.partition(",")[0] for line in out.splitlines()] == [
        "store/base: ok",
        "store/one: ok",
        "store/slow: ok",
    ]
    assert at_store("verify", "store/slow", "store/one")[0] == 0


def _changed(run: Path) -> None:
    file = run / "intervals.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _shorter(run: Path) -> None:
    file = run / "intervals.parquet"
    file.write_bytes(file.read_bytes()[:-1])


def _missing(run: Path) -> None:
    (run / "intervals.parquet").unlink()


def _link(run: Path) -> None:
    file = run / "intervals.parquet"
    file.rename(run.parent.parent / "moved.parquet")
    file.symlink_to((run.parent.parent / "moved.parquet").absolute())


def _linked_folder(run: Path) -> None:
    (run / "steps").rename(run.parent.parent / "moved")
    (run / "steps").symlink_to((run.parent.parent / "moved").absolute())


def _pipe(run: Path) -> None:
    (run / "intervals.parquet").unlink()
    os.mkfifo(run / "intervals.parquet")


def _names(name: str) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        content = json.loads((run / MANIFEST).read_text())
        content["files"][name] = {"size": 1, "sha256": "x"}
        (run / MANIFEST).write_text(json.dumps(content))

    return harm


def _no_manifest(run: Path) -> None:
    (run / MANIFEST).unlink()


def _cut_manifest(run: Path) -> None:
    (run / MANIFEST).write_text("{")


def _gone(run: Path) -> None:
    shutil.rmtree(run)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (_changed, "intervals.parquet: the checksum differs"),
        (_shorter, "were collected"),
        (_missing, "intervals.parquet: missing"),
        (_link, "intervals.parquet: a link, or not a file"),
        (_linked_folder, ".parquet: a link, or not a file"),
        (_pipe, "intervals.parquet: a link, or not a file"),
        (_names("../base/manifest.json"), "the manifest names a file outside of the run"),
        (_names("/etc/passwd"), "/etc/passwd: the manifest names a file outside of the run"),
        (_names("a\0b"), "the manifest names a file outside of the run"),
        (_names("x" * 5000), "cannot be read: File name too long"),
        (_no_manifest, "no manifest.json: an incomplete run"),
        (_cut_manifest, "its manifest.json is damaged"),
        (_gone, "the folder is gone, and catalogue.sqlite still lists it"),
    ],
)
def test_damage_is_reported_and_the_others_are_checked(
    at_store: Commands, harm: Callable[[Path], None], sentence: str
) -> None:
    harm(Path("store/slow"))
    status, out, errors = at_store("verify", "store")
    assert (status, errors) == (2, "")
    damaged = [line for line in out.splitlines() if "damaged" in line]
    assert damaged
    assert all(line.startswith("store/slow: damaged: ") for line in damaged)
    assert any(sentence in line for line in damaged)
    assert "store/base: ok" in out
    assert "store/one: ok" in out


def test_other_folders_are_a_note(at_store: Commands) -> None:
    Path("store/notes").mkdir()
    Path("store/slow/mine.txt").write_text("x")
    status, out, _ = at_store("verify", "store")
    assert status == 0
    assert "store/notes: note: no manifest.json: not a collected run" in out
    assert "store/slow: note: mine.txt: not of this run" in out


def test_a_row_of_another_state_of_a_run_is_a_note(at_store: Commands) -> None:
    save_run(replace(load_run(Path("store/slow")), source="elsewhere"), Path("store"))
    status, out, _ = at_store("verify", "store")
    assert status == 0
    assert "store/slow: note: catalogue.sqlite describes another state of it" in out


@pytest.mark.parametrize("place", ["nowhere", "plain"])
def test_there_is_something_to_check(at_store: Commands, place: str) -> None:
    Path("plain").mkdir()
    status, out, errors = at_store("verify", "store/slow", place)
    assert (status, out) == (2, "")
    assert f"{place}: neither a store nor a collected run" in errors


def test_a_bar_goes_to_the_terminal_alone(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bars, "_PATIENCE_SECONDS", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    status, out, errors = at_store("verify", "store")
    assert status == 0
    assert out.count(": ok, ") == 3
    assert "checking" in errors
