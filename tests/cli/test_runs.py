"""``stallscope runs``, ``rm`` and ``verify`` as a user types them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import collect_job
from support.step_logs import Job, write_job

from stallscope.catalogue.index import Catalogue
from stallscope.cli import bars
from stallscope.cli.main import main
from stallscope.cli.runs_table import COLUMNS
from stallscope.collector.store.layout import CATALOGUE, MANIFEST
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.runs import save_run
from stallscope.parsers import read

JOB = Job(ranks=2, steps=200, allreduce_ms=0.5)
JOBS = (
    replace(JOB, run_id="slow", slow={(1, "input"): 9.0}),
    replace(JOB, run_id="base", facts={"synthetic": True}),
    replace(JOB, run_id="one", ranks=1, facts={"synthetic": True, "run_name": "alone"}),
)
Commands = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of three runs; read-only."""
    folder = tmp_path_factory.mktemp("made")
    for job in JOBS:
        collect_job(folder, job)
    return folder / "store"


@pytest.fixture
def stallscope(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Commands:
    """Run a command line next to a copy of the store; return status, output, errors."""
    shutil.copytree(made, tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([str(word) for word in words])
        return (status, *capsys.readouterr())

    return command


def documents(stallscope: Commands, *words: str) -> list[dict[str, object]]:
    status, out, errors = stallscope("runs", *words, "--json")
    assert (status, errors) == (0, "")
    found = json.loads(out)
    assert isinstance(found, list)
    return found


# runs


def test_the_list_in_a_separate_process(stallscope: Commands, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stallscope", "runs", "store"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "rank 1: imba" in done.stdout


def test_the_list_fits_a_terminal(stallscope: Commands) -> None:
    status, out, errors = stallscope("runs", "store")
    assert (status, errors) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == [
        *("run", "ranks", "steps", "samples/s", "verdict", "step", "baseline", "age")
    ]
    assert max(map(len, out.splitlines())) <= 80
    (slow,) = [line for line in lines if line.startswith("slow")]
    assert "base" in slow
    assert slow.rstrip().endswith("d")
    (base,) = [line for line in lines if line.startswith("base")]
    assert "is one" in base
    assert any(line.startswith("alone #one") for line in lines)
    assert "▒ allreduce" in lines[-2]
    assert lines[-1] == "more --columns: goodput, size"


@pytest.mark.parametrize("width", ["24", "40", "60"])
def test_names_and_verdicts_are_never_cut(
    stallscope: Commands, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    _, out, _ = stallscope("runs", "store")
    assert max(map(len, out.splitlines())) <= int(width)
    assert "alone #one" in out
    assert "rank 1:" in out
    assert "…" not in out


def test_what_is_piped_has_every_column(
    stallscope: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    _, out, _ = stallscope("runs", "store")
    assert out.split("\n")[0].split() == [*COLUMNS]


def test_columns_are_chosen(stallscope: Commands) -> None:
    _, out, _ = stallscope("runs", "store", "--columns", "age, run")
    assert out.splitlines()[0].split() == ["age", "run"]
    status, _, errors = stallscope("runs", "store", "--columns", "run,stps")
    assert (status, errors) == (
        2,
        'stallscope: --columns: no such column: "stps"; did you mean "steps"?\n',
    )


def test_the_format_is_json(stallscope: Commands) -> None:
    _, out, _ = stallscope("runs", "store", "--format", "json")
    assert json.loads(out) == documents(stallscope, "store")


def test_bars_have_one_length_and_show_the_largest_share(stallscope: Commands) -> None:
    _, out, _ = stallscope("runs", "store")
    bars = {
        line.split()[0]: "".join(character for character in line if character in "█▓░▒")
        for line in out.splitlines()[1:-2]
    }
    assert {len(bar) for bar in bars.values()} == {10}
    # Input of the slow rank, which the other one waits for.
    assert bars["slow"].count("█") >= 2
    assert bars["alone"].count("▓") >= 8


def test_a_healthy_run_is_not_accused(stallscope: Commands) -> None:
    _, out, _ = stallscope("runs", "store")
    (base,) = [line for line in out.splitlines() if line.startswith("base")]
    assert "no fault" in base
    faulty = documents(stallscope, "store", "--where", "fault=yes")
    assert [one["id"] for one in faulty] == ["slow"]
    (one,) = documents(stallscope, "store", "--where", "fault=no synthetic=yes ranks>1")
    assert (one["id"], one["fault"]) == ("base", False)


def test_json_has_everything_and_nothing_else_is_printed(stallscope: Commands) -> None:
    found = {str(one["id"]): one for one in documents(stallscope, "store")}
    assert found.keys() == {"slow", "base", "one"}
    slow = found["slow"]
    assert slow["path"] == "store/slow"
    assert (slow["ranks"], slow["steps"], slow["model"]) == (2, 200, "made")
    assert (slow["verdict"], slow["cause"], slow["named_ranks"]) == ("imbalance", "input", [1])
    assert slow["shares"].keys() == {"input", "compute", "other", "imbalance", "allreduce"}  # type: ignore[attr-defined]
    assert (slow["baseline"], found["base"]["baseline"]) == ("base", None)
    assert found["one"]["name"] == "alone"


def test_filter_order_and_limit(stallscope: Commands) -> None:
    def ids(*words: str) -> list[object]:
        return [one["id"] for one in documents(stallscope, "store", *words)]

    assert ids("--where", "verdict=imbalance ranks>=2") == ["slow"]
    assert ids("--where", "synthetic=yes", "--sort", "ranks") == ["base", "one"]
    assert ids("--where", "synthetic=yes", "--sort", "ranks", "--reverse") == ["one", "base"]
    assert ids("--sort", "id", "--limit", "2") == ["base", "one"]
    _, out, _ = stallscope("runs", "store", "--limit", "1")
    assert "1 of 3 runs; --limit 3 shows all" in out
    said = "no run matches --where ranks>100\n"
    assert stallscope("runs", "store", "--where", "ranks>100") == (0, said, "")
    assert documents(stallscope, "store", "--where", "ranks>100") == []


def test_a_folder_without_collected_runs_shows_how_to_collect(
    stallscope: Commands, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    _, _, errors = stallscope("runs", "logs")
    assert "into this folder; stallscope collect LOGS --to STORE does that" in errors


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "nowhere: no such folder"),
        (("store/slow",), "store/slow: this is one collected run; its store is "),
        (("store", "--where", "rank=3"), "there is no field 'rank'"),
        (("store", "--where", "x"), "'x' is not a condition"),
        (("store", "--sort", "x"), "--sort: there is no field 'x'"),
        (("store", "--limit", "-1"), "--limit -1: give a number of runs"),
        ((), ".: no runs were collected into this folder; there are some in store"),
    ],
)
def test_mistakes_are_errors_of_one_sentence(
    stallscope: Commands, words: tuple[str, ...], sentence: str
) -> None:
    status, out, errors = stallscope("runs", *words)
    assert (status, out) == (2, "")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_a_search_for_runs_writes_nothing(stallscope: Commands, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert stallscope("runs", "empty")[0] == 2
    assert list((tmp_path / "empty").iterdir()) == []


def test_runs_are_searched_in_the_working_folder(
    stallscope: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path / "store")
    assert len(documents(stallscope)) == 3


def test_names_from_logs_are_printed_as_text(
    stallscope: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "[bold red]x[/] \x1b[2J\x07\u202e [link=http://evil]y"
    write_job(Path("evil"), replace(JOB, steps=20, run_id="evil", facts={"run_name": name}))
    save_run(read("evil")[0], Path("store"))
    monkeypatch.setenv("COLUMNS", "200")
    status, out, errors = stallscope("runs", "store")
    assert (status, errors) == (0, "")
    assert "[bold red]x[/] \\u001b[2J\\u0007\\u202e [link=http://evil]y #evil" in out
    assert not set(out) & set("\x1b\x07\u202e")
    (found,) = documents(stallscope, "store", "--where", "id=evil")
    assert found["name"] == name


def test_a_damaged_run_is_named_after_the_list(stallscope: Commands) -> None:
    Path("store/bad").mkdir()
    Path("store/bad", MANIFEST).write_text("{")
    status, out, errors = stallscope("runs", "store", "--json")
    assert status == 0
    assert len(json.loads(out)) == 3
    assert "store/bad: its manifest.json is damaged" in errors


# rm


def test_a_run_is_removed_with_its_row(stallscope: Commands) -> None:
    status, out, _ = stallscope("rm", "store#slow", "store/one", "--yes")
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
    stallscope: Commands, tmp_path: Path, words: tuple[str, ...], sentence: str
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
    status, out, errors = stallscope("rm", *words, "--yes")
    assert (status, out) == (2, "")
    assert sentence in errors
    assert _everything(tmp_path) == before


def test_links_among_a_runs_files_are_removed_and_not_followed(
    stallscope: Commands, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("a year of work")
    file = tmp_path / "store" / "slow" / "intervals.parquet"
    file.unlink()
    file.symlink_to(tmp_path / "thesis.txt")
    assert stallscope("rm", "store#slow", "--yes")[0] == 0
    assert not (tmp_path / "store" / "slow").exists()
    assert (tmp_path / "thesis.txt").read_text() == "a year of work"


def test_a_catalogue_that_names_another_folder_removes_nothing(stallscope: Commands) -> None:
    with Catalogue.open(Path("store")) as catalogue:
        entry = catalogue.find("slow")
        assert entry is not None
        catalogue.remove("slow")
        catalogue.add(replace(entry, folder="base"))
        catalogue.remove("base", "base")
    shutil.rmtree("store/slow")
    status, _, errors = stallscope("rm", "store#slow", "--yes")
    assert status == 2
    assert "this is the run base, not slow" in errors
    assert Path("store/base").is_dir()


def test_without_a_terminal_nothing_is_removed(
    stallscope: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as empty:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", empty)
        status, _, errors = stallscope("rm", "store#slow")
    assert status == 2
    assert "--yes removes the runs" in errors
    assert Path("store/slow").is_dir()


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("yes", 0), ("n", 2), ("", 2)])
def test_a_terminal_is_asked_for_confirmation(
    stallscope: Commands, tmp_path: Path, answer: str, status: int
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
            timeout=120,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == status, done.stderr
    assert "store/slow: " in done.stderr
    assert "Remove 1 run? [y/N]" in done.stderr
    assert (tmp_path / "store" / "slow").is_dir() == (status == 2)


# verify


def test_an_undamaged_store_is_ok(stallscope: Commands) -> None:
    status, out, errors = stallscope("verify", "store")
    assert (status, errors) == (0, "")
    assert [line.partition(",")[0] for line in out.splitlines()] == [
        "store/base: ok",
        "store/one: ok",
        "store/slow: ok",
    ]
    assert stallscope("verify", "store/slow", "store/one")[0] == 0


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
    stallscope: Commands, harm: Callable[[Path], None], sentence: str
) -> None:
    harm(Path("store/slow"))
    status, out, errors = stallscope("verify", "store")
    assert (status, errors) == (2, "")
    damaged = [line for line in out.splitlines() if "damaged" in line]
    assert damaged
    assert all(line.startswith("store/slow: damaged: ") for line in damaged)
    assert any(sentence in line for line in damaged)
    assert "store/base: ok" in out
    assert "store/one: ok" in out


def test_other_folders_are_a_note(stallscope: Commands) -> None:
    Path("store/notes").mkdir()
    Path("store/slow/mine.txt").write_text("x")
    status, out, _ = stallscope("verify", "store")
    assert status == 0
    assert "store/notes: note: no manifest.json: not a collected run" in out
    assert "store/slow: note: mine.txt: not of this run" in out


def test_a_row_of_another_state_of_a_run_is_a_note(stallscope: Commands) -> None:
    save_run(replace(load_run(Path("store/slow")), source="elsewhere"), Path("store"))
    status, out, _ = stallscope("verify", "store")
    assert status == 0
    assert "store/slow: note: catalogue.sqlite describes another state of it" in out


@pytest.mark.parametrize("place", ["nowhere", "plain"])
def test_there_is_something_to_check(stallscope: Commands, place: str) -> None:
    Path("plain").mkdir()
    status, out, errors = stallscope("verify", "store/slow", place)
    assert (status, out) == (2, "")
    assert f"{place}: neither a store nor a collected run" in errors


def test_a_bar_goes_to_the_terminal_alone(
    stallscope: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "_PATIENCE_SECONDS", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    status, out, errors = stallscope("verify", "store")
    assert status == 0
    assert out.count(": ok, ") == 3
    assert "checking" in errors


def _everything(folder: Path) -> dict[str, bytes | None]:
    """Return all that is below a folder, without what SQLite and locks leave."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.name.startswith((".lock", ".catalogue", CATALOGUE))
    }
