"""The catalogue follows its store, and survives any damage of its file."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from support.catalogues import JOB, collected, saved

from stallscope.analysis import ENTRIES, analyse
from stallscope.analysis.gains.baseline import COMPARED
from stallscope.analysis.ledger import ledger as analysis_ledger
from stallscope.catalogue import checking
from stallscope.catalogue.database import COLUMNS, SCHEMA_VERSION
from stallscope.catalogue.entry import SHARES, Entry
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.where import FIELDS
from stallscope.collector.store.layout import CATALOGUE, MANIFEST, SUMMARY
from stallscope.collector.store.loading import load_run
from stallscope.errors import (
    NotFoundError,
    UnknownVersionError,
    UnreadableError,
    UnwritableError,
)
from stallscope.words import CAUSES


def entries(store: Path) -> list[str]:
    with Catalogue.open(store) as catalogue:
        return [entry.id for entry in catalogue.entries()]


# Entries


def test_an_entry_agrees_with_the_run_and_its_analysis(store: Path) -> None:
    job = replace(JOB, steps=200, epochs=2, slow={(1, "input"): 30.0}, hosts=("alpha", "beta"))
    entry = collected(store, job, analysed=True)
    run = load_run(store / entry.folder)
    analysis = analyse(run)
    with Catalogue.open(store) as catalogue:
        assert catalogue.find("run-a") == entry
        assert catalogue.entries() == [entry]
    assert (entry.id, entry.name, entry.folder, entry.status) == (
        "run-a",
        "run-a",
        "run-a",
        "completed",
    )
    assert (entry.framework, entry.model, entry.batch_size) == ("tensorflow", "made", 32)
    assert (entry.ranks, entry.hosts, entry.synthetic) == (2, ("alpha", "beta"), False)
    assert entry.bytes == sum(path.stat().st_size for path in (store / "run-a").rglob("*.parquet"))
    summary = entry.summary
    assert (summary.steps, summary.epochs) == (200, 2)
    assert summary.samples_per_second == analysis.samples_per_second
    assert analysis.step is not None
    assert summary.step_ms == analysis.step.mean
    assert (summary.verdict, summary.cause, summary.named_ranks) == ("imbalance", "input", (1,))
    assert {name: summary.shares[name] for name in CAUSES} == {
        entry.name: entry.share for entry in analysis.by_cause
    }
    assert sum(summary.shares[name] for name in CAUSES) == pytest.approx(1)
    waiting = analysis.entry("imbalance")
    assert waiting is not None
    assert summary.shares["imbalance"] == waiting.share > 0


def test_without_an_analysis_steps_and_epochs_are_counted(store: Path) -> None:
    summary = collected(store, replace(JOB, epochs=3)).summary
    assert (summary.steps, summary.epochs, summary.verdict) == (60, 3, None)
    assert summary.shares == {}


def test_every_field_of_a_filter_is_a_column() -> None:
    assert FIELDS.keys() - COLUMNS.keys() == {"age"}
    assert analysis_ledger.CAUSES == CAUSES
    assert set(ENTRIES) == set(SHARES)


def test_every_field_of_a_filter_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "catalogue.md").read_text()
    table = page.partition("| field |")[2].partition("\n\n")[0]
    first = [line.split(" | ")[0] for line in table.splitlines()]
    assert set(re.findall(r"`(\w+)`", " ".join(first))) == set(FIELDS)


def test_another_list_of_compared_facts_is_another_schema() -> None:
    # Rows identify runs of the same job by the compared facts at the time of writing. If this
    # fails, raise SCHEMA_VERSION by one, and add the list here.
    first = (
        *("model", "parameters", "batch_size", "optimizer", "backward_passes_per_step"),
        *("steps_per_execution", "framework", "versions", "threads"),
    )
    # The second version has another column, the third has shares by cause, the fourth has goodput,
    # the fifth has faults of baselines, the sixth has no number of ranks where it is unknown.
    noted = dict.fromkeys((1, 2, 3, 4, 5, 6), first)
    assert noted[SCHEMA_VERSION] == COMPARED


def test_facts_of_strange_types_are_listed_too(store: Path) -> None:
    facts = {
        "batch_size": 10**40,
        "model": {"a": ["\ud800", None]},
        "framework": "\ud800[red]\x1b[2J",
        "versions": ["x"],
        "run_name": "\ud800",
    }
    collected(store, replace(JOB, facts=facts))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        (entry,) = catalogue.entries()
        assert (entry.batch_size, entry.ranks, entry.name) == (None, 2, "\ufffd")
        assert catalogue.problems == ()


# The file


def test_a_missing_catalogue_is_made_from_the_folders_with_its_verdicts(store: Path) -> None:
    entry = collected(store, analysed=True)
    saved(store, replace(JOB, run_id="run-b"))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        assert catalogue.find("run-a") == entry
        rebuilt = catalogue.find("run-b")
    assert rebuilt is not None
    assert (rebuilt.model, rebuilt.ranks, rebuilt.summary.verdict) == ("made", 2, None)


def test_findings_of_another_state_of_a_run_are_ignored(store: Path) -> None:
    collected(store, analysed=True)
    kept = (store / "run-a" / SUMMARY).read_bytes()
    saved(store, replace(JOB, steps=90))
    (store / "run-a" / SUMMARY).write_bytes(kept)
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        entry = catalogue.find("run-a")
    assert entry is not None
    assert entry.summary.verdict is None


def test_an_earlier_versions_summary_keeps_its_verdict_and_has_no_shares(store: Path) -> None:
    entry = collected(store, analysed=True)
    path = store / "run-a" / SUMMARY
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({**content, "stallscope_summary": 1}))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        rebuilt = catalogue.find("run-a")
    assert rebuilt == replace(entry, summary=replace(entry.summary, shares={}))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"manifest": 3}'])
def test_a_damaged_summary_loses_the_verdict_and_nothing_else(store: Path, content: bytes) -> None:
    collected(store, analysed=True)
    (store / "run-a" / SUMMARY).write_bytes(content)
    (store / CATALOGUE).unlink()
    assert entries(store) == ["run-a"]


def _garbage(path: Path) -> None:
    path.write_bytes(b"remember the milk" * 1000)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:-4096] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)


def _without_a_column(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE runs DROP COLUMN verdict")
    connection.close()


def _no_json(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET host = '[', facts = '3'")
    connection.close()


def _no_text(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET name = CAST(x'ff' AS TEXT)")
    connection.close()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "harm", [_garbage, _cut, _scribbled, _without_a_column, _no_json, _no_text, _empty]
)
def test_a_damaged_catalogue_is_rebuilt(store: Path, harm: object) -> None:
    first = collected(store, analysed=True)
    second = collected(store, replace(JOB, run_id="run-b"))
    harm(store / CATALOGUE)  # type: ignore[operator]
    with Catalogue.open(store) as catalogue:
        assert {entry.id: entry for entry in catalogue.entries()} == {
            "run-a": first,
            "run-b": second,
        }
        catalogue.add(first)
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.count() == 2


def test_damage_while_it_is_open_is_repaired_too(store: Path) -> None:
    collected(store)
    with Catalogue.open(store) as catalogue:
        second = collected(store, replace(JOB, run_id="run-b"))
        _garbage(store / CATALOGUE)
        catalogue.add(second)
        assert {entry.id for entry in catalogue.entries()} == {"run-a", "run-b"}
    assert entries(store) == ["run-a", "run-b"]


def test_a_catalogue_that_was_moved_away_is_not_written_to(store: Path) -> None:
    collected(store)
    with Catalogue.open(store) as catalogue:
        (store / CATALOGUE).rename(store / "elsewhere")
        second = Entry.read(saved(store, replace(JOB, run_id="run-b")))
        catalogue.add(second)
    with Catalogue.open(store, follow=False) as catalogue:
        assert [entry.id for entry in catalogue.entries()] == ["run-b"]
    assert entries(store) == ["run-a", "run-b"]


def test_an_older_catalogue_is_rebuilt(store: Path) -> None:
    entry = collected(store)
    with sqlite3.connect(store / CATALOGUE) as connection:
        connection.execute("DROP TABLE runs")
        connection.execute("CREATE TABLE runs (id TEXT)")
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    with Catalogue.open(store) as catalogue:
        assert catalogue.entries() == [entry]


def test_a_newer_catalogue_is_refused_by_its_version(store: Path) -> None:
    collected(store)
    with sqlite3.connect(store / CATALOGUE) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(UnknownVersionError, match=r"newer Stallscope \(version 9, .* upgrade"):
        Catalogue.open(store)


def test_a_foreign_database_is_left_alone(store: Path) -> None:
    with sqlite3.connect(store / CATALOGUE) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = (store / CATALOGUE).read_bytes()
    with pytest.raises(UnreadableError, match="a database of another program"):
        Catalogue.open(store)
    assert (store / CATALOGUE).read_bytes() == before


def test_without_write_permission_runs_are_listed_and_adding_fails(store: Path) -> None:
    entry = Entry.read(saved(store))
    (store / CATALOGUE).mkdir()
    with Catalogue.open(store) as catalogue:
        assert catalogue.entries() == [entry]
        assert catalogue.find("run-a") == entry
        with pytest.raises(UnwritableError, match="the catalogue cannot be written"):
            catalogue.add(entry)


def test_a_folder_without_a_row_is_listed_and_a_row_without_a_folder_is_not(store: Path) -> None:
    for name in ("run-a", "run-b"):
        collected(store, replace(JOB, run_id=name))
    saved(store, replace(JOB, run_id="run-c"))
    shutil.rmtree(store / "run-a")
    (store / "notes").mkdir()
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() == {"run-a", "run-b"}
    assert entries(store) == ["run-b", "run-c"]
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() == {"run-b", "run-c"}


def test_a_run_with_a_damaged_manifest_is_named_and_the_others_are_listed(store: Path) -> None:
    collected(store)
    for name, content in {"cut": "{", "other": '{"name": "x"}', "old": "[1]"}.items():
        (store / name).mkdir()
        (store / name / MANIFEST).write_text(content)
    content = json.loads((store / "run-a" / MANIFEST).read_text())
    (store / "strange").mkdir()
    (store / "strange" / MANIFEST).write_text(json.dumps({**content, "logs": []}))
    with Catalogue.open(store) as catalogue:
        assert [entry.id for entry in catalogue.entries()] == ["run-a"]
        assert len(catalogue.problems) == 4
    assert all("collect" in problem for problem in catalogue.problems)


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        Catalogue.open(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


# Checking


def test_a_run_that_is_replaced_while_it_is_checked_is_not_damaged(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_AT_ONCE", 1)
    folder = saved(store)
    reads = []

    def replaced_once(read: int) -> None:
        reads.append(read)
        if len(reads) == 1:
            saved(store, replace(JOB, steps=90))

    checked = checking.check_run(folder, replaced_once)
    assert (checked.damage, checked.files) == ((), 2)
    assert len(reads) > 2
