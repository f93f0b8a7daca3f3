"""``stallscope rm`` as a user types it: it removes collected runs, and nothing else."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import Commands
from support.waiting import PATIENCE_SECONDS

from stallscope.catalogue.index import Catalogue
from stallscope.collector.store.layout import CATALOGUE, MANIFEST


def test_a_run_is_removed_with_its_row(at_store: Commands) -> None:
    status, out, _ = at_store("rm", "store#slow", "store/one", "--yes")
    assert status == 0
    assert out.count(": removed\n") == 2
    with Catalogue.open(Path("store"), follow=False) as catalogue:
        assert catalogue.folders() == {"base"}
    left = {path.name for path in Path("store").iterdir() if not path.name.startswith(".")}
    assert left == {"base", CATALOGUE}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("store",), "store: this is a whole store; name a run: store#RUN_ID"),
        (("store#nonsense",), 'store: no such run: "nonsense"; there are '),
        (("nowhere#slow",), "nowhere: no such folder"),
        (("nowhere",), "this is not a collected run: it has no manifest.json"),
        (("plain",), "this is not a collected run: it has no manifest.json"),
        (("foreign",), "damaged, or of another program"),
        (("store/slow", "plain"), "this is not a collected run"),
        (("link",), "this is a link"),
        (("store/linked",), "this is a link"),
        (("#slow",), "name the store"),
        (("",), "name the store"),
        (
            ("noted/slow",),
            "has files that were not collected with the run: mine/notes.txt; move them",
        ),
        (("linking/slow",), "has files that were not collected with the run: elsewhere; move them"),
        (("twice#slow",), "several runs have the id slow; name a folder: "),
    ],
)
def test_only_collected_runs_are_removed(
    at_store: Commands, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    for name in ("plain", "foreign", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("a year of work")
    (tmp_path / "foreign" / MANIFEST).write_text('{"name": "a web app"}')
    for name in ("noted", "linking", "twice"):
        shutil.copytree("store", name)
    (tmp_path / "noted" / "slow" / "mine").mkdir()
    (tmp_path / "noted" / "slow" / "mine" / "notes.txt").write_text("keep me")
    (tmp_path / "linking" / "slow" / "elsewhere").symlink_to(tmp_path / "outside")
    shutil.copytree("twice/slow", "twice/again")
    (tmp_path / "link").symlink_to(tmp_path / "store" / "slow")
    (tmp_path / "store" / "linked").symlink_to(tmp_path / "noted" / "slow")
    before = _everything(tmp_path)
    status, out, errors = at_store("rm", *words, "--yes")
    assert (status, out) == (2, "")
    assert sentence in errors
    assert _everything(tmp_path) == before


def test_links_among_a_runs_files_are_removed_and_not_followed(
    at_store: Commands, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("a year of work")
    file = tmp_path / "store" / "slow" / "intervals.parquet"
    file.unlink()
    file.symlink_to(tmp_path / "thesis.txt")
    assert at_store("rm", "store#slow", "--yes")[0] == 0
    assert not (tmp_path / "store" / "slow").exists()
    assert (tmp_path / "thesis.txt").read_text() == "a year of work"


def test_a_catalogue_that_names_another_folder_removes_nothing(at_store: Commands) -> None:
    with Catalogue.open(Path("store")) as catalogue:
        entry = catalogue.find("slow")
        assert entry is not None
        catalogue.remove("slow")
        catalogue.add(replace(entry, folder="base"))
        catalogue.remove("base", "base")
    shutil.rmtree("store/slow")
    status, _, errors = at_store("rm", "store#slow", "--yes")
    assert status == 2
    assert "this is the run base, not slow" in errors
    assert Path("store/base").is_dir()


def test_without_a_terminal_nothing_is_removed(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as empty:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", empty)
        status, _, errors = at_store("rm", "store#slow")
    assert status == 2
    assert "--yes removes the runs" in errors
    assert Path("store/slow").is_dir()


@pytest.mark.broad
@pytest.mark.parametrize(
    ("answer", "status"),
    [("y", 0), pytest.param("yes", 0, marks=pytest.mark.variant), ("n", 2), ("", 2)],
)
def test_a_terminal_is_asked_for_confirmation(
    at_store: Commands, tmp_path: Path, answer: str, status: int
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "stallscope", "rm", "store#slow"],
            stdin=theirs,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == status, done.stderr
    assert "store/slow: " in done.stderr
    assert "Remove 1 run? [y/N]" in done.stderr
    assert (tmp_path / "store" / "slow").is_dir() == (status == 2)


def _everything(folder: Path) -> dict[str, bytes | None]:
    """Return all that is below a folder, without what SQLite and locks leave."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.name.startswith((".lock", ".catalogue", CATALOGUE))
    }
