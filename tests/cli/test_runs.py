"""``stallscope runs`` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Commands
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

import stallscope as ss
from stallscope.cli.runs import COLUMNS
from stallscope.collector.store.layout import MANIFEST
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read


def documents(at_store: Commands, *words: str) -> list[dict[str, object]]:
    status, out, errors = at_store("runs", *words, "--json")
    assert (status, errors) == (0, "")
    listed = json.loads(out)
    assert isinstance(listed, list)
    return listed


def test_the_list_in_a_separate_process(at_store: Commands, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stallscope", "runs", "store"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Slow rank 1" in done.stdout


def test_the_list_fits_a_terminal(at_store: Commands) -> None:
    status, out, errors = at_store("runs", "store")
    assert (status, errors) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == [
        *("run", "ranks", "steps", "samples/s", "verdict", "step", "baseline", "size", "age")
    ]
    assert max(map(len, out.splitlines())) <= 80
    (slow,) = [line for line in lines if line.startswith("slow")]
    assert "base" in slow
    assert slow.rstrip().endswith("d")
    (base,) = [line for line in lines if line.startswith("base")]
    assert "is one" in base
    assert any(line.startswith("alone #one") for line in lines)
    assert "▒ allreduce" in lines[-2]
    assert lines[-1] == "more --columns: goodput"


@pytest.mark.parametrize("width", ["24", "40", "60"])
def test_names_and_verdicts_are_never_cut(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    _, out, _ = at_store("runs", "store")
    assert max(map(len, out.splitlines())) <= int(width)
    assert "alone #one" in out
    assert "Slow rank 1" in " ".join(out.split())
    assert "…" not in out


def test_what_is_piped_has_every_column(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    _, out, _ = at_store("runs", "store")
    assert out.split("\n")[0].split() == [*COLUMNS]


def test_columns_are_chosen(at_store: Commands) -> None:
    _, out, _ = at_store("runs", "store", "--columns", "age, run")
    assert out.splitlines()[0].split() == ["age", "run"]
    status, _, errors = at_store("runs", "store", "--columns", "run,stps")
    assert (status, errors) == (
        2,
        'stallscope: --columns: no such column: "stps"; did you mean "steps"?\n',
    )


def test_columns_are_also_the_fields_of_filters(at_store: Commands) -> None:
    _, out, _ = at_store(
        *("runs", "store", "--where", "id=slow"),
        *("--columns", "id,model,status,bottleneck,step_ms,input.share,bytes,synthetic,hosts"),
    )
    head, row = out.splitlines()
    assert head.split()[:4] == ["id", "model", "status", "bottleneck"]
    (document,) = documents(at_store, "store", "--where", "id=slow")
    assert row.split()[0] == "slow"
    assert "completed" in row
    assert f" {document['verdict']} " in row
    assert f"{document['step_ms']:.1f} ms" in row
    assert row.split()[-2:] == ["no", "1"]


def test_a_long_name_is_cut_in_the_middle_and_no_column_is_lost(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "begin-" + "resnet50-imagenet-" * 6 + "end"
    write_job(Path("long"), Job(ranks=2, steps=20, run_id="long", facts={"run_name": name}))
    save_run(read("long")[0], Path("store"))
    _, out, _ = at_store("runs", "store")
    head = out.splitlines()[0].split()
    assert head == ["run", "ranks", "steps", "samples/s", "verdict", "age"]
    (line,) = [line for line in out.splitlines() if line.startswith("begin-")]
    title, _, rest = line.partition(" #long")
    assert (len(title), title.count("…"), title[-3:]) == (32, 1, "end")
    assert rest.split()[0] == "2"
    assert max(map(len, out.splitlines())) <= 80
    monkeypatch.delenv("COLUMNS")
    assert name in at_store("runs", "store")[1]


def test_the_format_is_json(at_store: Commands) -> None:
    _, out, _ = at_store("runs", "store", "--format", "json")
    assert json.loads(out) == documents(at_store, "store")


def test_bars_have_one_length_and_show_the_largest_share(at_store: Commands) -> None:
    _, out, _ = at_store("runs", "store")
    bars = {
        line.split()[0]: "".join(character for character in line if character in "█▓░▒")
        for line in out.splitlines()[1:-2]
    }
    assert {len(bar) for bar in bars.values()} == {10}
    # Input of the slow rank, which the other one waits for.
    assert bars["slow"].count("█") >= 2
    assert bars["alone"].count("▓") >= 8


def test_a_healthy_run_is_not_accused(at_store: Commands) -> None:
    _, out, _ = at_store("runs", "store")
    (base,) = [line for line in out.splitlines() if line.startswith("base")]
    assert "No fault" in base
    faulty = documents(at_store, "store", "--where", "fault=yes")
    assert [run["id"] for run in faulty] == ["slow"]
    (healthy,) = documents(at_store, "store", "--where", "fault=no synthetic=yes ranks>1")
    assert (healthy["id"], healthy["fault"]) == ("base", False)


def test_json_has_everything_and_nothing_else_is_printed(at_store: Commands) -> None:
    runs = {str(run["id"]): run for run in documents(at_store, "store")}
    assert runs.keys() == {"slow", "base", "one"}
    slow = runs["slow"]
    assert slow["path"] == "store/slow"
    assert (slow["ranks"], slow["steps"], slow["model"]) == (2, 200, "made")
    assert (slow["verdict"], slow["cause"], slow["named_ranks"]) == ("imbalance", "input", [1])
    assert slow["shares"].keys() == {"input", "compute", "other", "imbalance", "allreduce"}  # type: ignore[attr-defined]
    assert (slow["baseline"], runs["base"]["baseline"]) == ("base", None)
    assert runs["one"]["name"] == "alone"


def test_an_unknown_number_of_ranks_is_missing(at_store: Commands, tmp_path: Path) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "train.log").write_text("Epoch 1/1\n78/78 - 16s - 205ms/step\n")
    assert at_store("collect", "epochs", "--to", "unknown")[0] == 0
    (run,) = documents(at_store, "unknown")
    assert run["ranks"] is None
    assert documents(at_store, "unknown", "--where", "ranks=1") == []
    _, out, _ = at_store("runs", "unknown", "--columns", "run,ranks")
    head, line, *_ = out.splitlines()
    assert head.split() == ["run", "ranks"]
    assert line.split()[-1] == f"#{run['id']}"
    assert ss.runs(tmp_path / "unknown")["ranks"].isna().all()


def test_several_logs_without_a_number_of_ranks_are_counted(
    at_store: Commands, tmp_path: Path
) -> None:
    (tmp_path / "epochs").mkdir()
    lines = ("Epoch 1/1", "78/78 - 16s - 205ms/step")
    (tmp_path / "epochs" / "train.log").write_text(
        "".join(f"[{rank}]<stdout>:{line}\n" for rank in (0, 1) for line in lines)
    )
    assert at_store("collect", "epochs", "--to", "unknown")[0] == 0
    (run,) = documents(at_store, "unknown")
    assert run["ranks"] == 2


def test_filter_order_and_limit(at_store: Commands) -> None:
    def ids(*words: str) -> list[object]:
        return [run["id"] for run in documents(at_store, "store", *words)]

    assert ids("--where", "verdict=imbalance ranks>=2") == ["slow"]
    assert ids("--where", "synthetic=yes", "--sort", "ranks") == ["base", "one"]
    assert ids("--where", "synthetic=yes", "--sort", "ranks", "--reverse") == ["one", "base"]
    assert ids("--sort", "id", "--limit", "2") == ["base", "one"]
    _, out, _ = at_store("runs", "store", "--limit", "1")
    assert "1 of 3 runs; --limit 3 shows all" in out
    said = "no run matches --where ranks>100\n"
    assert at_store("runs", "store", "--where", "ranks>100") == (0, said, "")
    assert documents(at_store, "store", "--where", "ranks>100") == []


def test_a_folder_without_collected_runs_shows_how_to_collect(
    at_store: Commands, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    _, _, errors = at_store("runs", "logs")
    assert "into this folder; stallscope collect LOGS --to STORE does that" in errors


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "nowhere: no such folder"),
        (("store/slow",), "store/slow: this is one collected run; its store is "),
        (("store", "--where", "rank=3"), "there is no field 'rank'"),
        (("store", "--where", "x"), "'x' is not a condition"),
        (("store", "--where", "verdict=imbalence"), "did you mean 'imbalance'?"),
        (("store", "--columns", "run,modle"), 'no such column: "modle"; did you mean "model"?'),
        (("store", "--columns", "foo"), "there are run, ranks, steps, samples/s, "),
        (("store", "--columns", "foo"), ", age, id, name, folder, source, framework, model, "),
        (("store", "--sort", "x"), "--sort: there is no field 'x'"),
        (("store", "--limit", "-1"), "--limit -1: give a number of runs"),
        ((), ".: no runs were collected into this folder; there are some in store"),
    ],
)
def test_mistakes_are_errors_of_one_sentence(
    at_store: Commands, words: tuple[str, ...], sentence: str
) -> None:
    status, out, errors = at_store("runs", *words)
    assert (status, out) == (2, "")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_a_search_for_runs_writes_nothing(at_store: Commands, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert at_store("runs", "empty")[0] == 2
    assert list((tmp_path / "empty").iterdir()) == []


def test_runs_are_searched_in_the_working_folder(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path / "store")
    assert len(documents(at_store)) == 3


def test_names_from_logs_are_printed_as_text(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "[bold red]x[/] \x1b[2J\x07\u202e [link=http://evil]y"
    write_job(Path("evil"), Job(ranks=2, steps=20, run_id="evil", facts={"run_name": name}))
    save_run(read("evil")[0], Path("store"))
    monkeypatch.setenv("COLUMNS", "200")
    status, out, errors = at_store("runs", "store")
    assert (status, errors) == (0, "")
    assert "[bold red]x[/] \\u001b[2J\\u0007\\u202e [link=http://evil]y #evil" in out
    assert not set(out) & set("\x1b\x07\u202e")
    (run,) = documents(at_store, "store", "--where", "id=evil")
    assert run["name"] == name


def test_a_damaged_run_is_named_after_the_list(at_store: Commands) -> None:
    Path("store/bad").mkdir()
    Path("store/bad", MANIFEST).write_text("{")
    status, out, errors = at_store("runs", "store", "--json")
    assert status == 0
    assert len(json.loads(out)) == 3
    assert "store/bad: its manifest.json is damaged" in errors


def test_ranks_that_a_printed_log_does_not_tell_are_left_open(
    at_store: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("first", "second"):
        lines = [f"iter {step}: loss 2.3, time 250.00ms\n" for step in range(0, 900, 10)]
        Path("printed").mkdir(exist_ok=True)
        Path("printed", f"{name}.log").write_text("".join(lines))
    assert at_store("collect", "printed", "--to", "lines")[0] == 0
    listed = documents(at_store, "lines")
    assert [(run["ranks"], run["verdict"]) for run in listed] == [(None, "insufficient_data")] * 2
    _, out, _ = at_store("runs", "lines", "--columns", "run,ranks,verdict")
    assert all(line.endswith("  Insufficient data") for line in out.splitlines()[1:])
    _, out, _ = at_store("report", "printed")
    rows = [line for line in out.splitlines() if line.startswith("printed/")]
    assert all(row.split()[2:5] == ["891", "250", "ms"] for row in rows)
    assert len(rows) == 2
