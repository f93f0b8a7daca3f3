"""The store of runs that were collected: listed without loading any, loaded when looked at."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import run_of_job
from support.waiting import PATIENCE_SECONDS

from stallscope.analysis import Analysis, analyse
from stallscope.catalogue.where import parse_search
from stallscope.collector.store.layout import CATALOGUE, MANIFEST
from stallscope.collector.store.loading import RunOnDisk, load_run
from stallscope.dashboard import RunStore
from stallscope.dashboard.store import CollectedRuns, RunSource, run_store
from stallscope.dashboard.store.cache import PREPARATION, lanes_of, lateness_of, logs_of, prepare
from stallscope.dashboard.store.run_store import size_of
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.run import Run

from .cases import ONE_RANK, REAL, SLOW_RANK, SYNTHETIC
from .stores import Listed, collect_into, listed


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a run, its baseline, the same on one rank, and a slow one; not to be changed."""
    folder = tmp_path_factory.mktemp("collected") / "runs"
    collect_into(folder, SYNTHETIC, ONE_RANK, REAL, SLOW_RANK)
    return folder


@pytest.fixture
def store_folder(collected: Path, tmp_path: Path) -> Path:
    """A copy of that store."""
    return Path(shutil.copytree(collected, tmp_path / "runs"))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders that are loaded, in turn."""
    loaded: list[str] = []
    load = RunOnDisk.open

    def counted(folder: Path) -> Run:
        loaded.append(folder.name)
        return load(folder)

    monkeypatch.setattr(RunOnDisk, "open", counted)
    return loaded


def _store(*folders: Path, runs: tuple[Run, ...] = (), **options: int) -> RunStore:
    return RunStore(runs, sources=[CollectedRuns(folder) for folder in folders], **options)


def test_a_store_is_listed_with_its_verdicts_without_loading_any_run(
    collected: Path, loads: list[str]
) -> None:
    store = _store(collected)
    assert {run.id for run in store.runs()} == {"real", "synthetic", "one-synthetic", "slow"}
    assert store.verdict("slow").ranks == (2,)
    assert store.verdict("real").kind == "input"
    assert store.baseline_of("real") == "synthetic"
    assert store.baseline_of("synthetic") is None
    assert "real" in store
    assert "nobody" not in store
    assert loads == []


def test_a_run_is_loaded_once_with_its_baseline_and_the_one_on_one_rank(
    collected: Path, loads: list[str]
) -> None:
    store = _store(collected)
    first = store.analysis("real", "synthetic")
    assert sorted(loads) == ["one-synthetic", "real", "synthetic"]
    assert first.baseline is not None
    assert first.single is not None
    assert (first.baseline.run.id, first.single.run.id) == ("synthetic", "one-synthetic")
    assert first.decomposition is not None
    assert store.analysis("real", "synthetic") is first
    store.analysis("real")
    assert len(loads) == 3


@pytest.mark.broad
def test_the_least_recently_used_are_dropped_when_they_take_too_much(
    collected: Path, loads: list[str]
) -> None:
    whole = size_of(_store(collected).analysis("slow"))
    loads.clear()
    store = _store(collected, most_bytes=whole + 1)
    for run_id in ("real", "slow", "real", "slow"):
        store.analysis(run_id)
        assert store._cache.size <= max(whole + 1, size_of(store.analysis(run_id)))
    assert loads.count("real") == 2
    roomy = _store(collected)
    loads.clear()
    for run_id in ("real", "slow", "real", "slow"):
        roomy.analysis(run_id)
    assert loads.count("real") == 1


def test_tables_are_freed_when_pages_have_what_they_need(collected: Path) -> None:
    analysis = _store(collected).analysis("real")
    assert "steps" not in vars(analysis.run)
    prepare(analysis)
    for thread in threading.enumerate():
        if thread.name == PREPARATION:
            thread.join(PATIENCE_SECONDS)
    lanes, logs = lanes_of(analysis), logs_of(analysis)
    assert lanes is not None
    assert [rank.steps for rank in logs] == [len(lanes)] * len(lanes.ranks)
    assert lateness_of(analysis, of_latest=True) is not None
    assert "steps" not in vars(analysis.run)
    # They are read again when they are needed.
    assert analysis.run.steps.num_rows == analysis.run.rows


def test_sizes_count_tables_arrays_and_baselines(collected: Path) -> None:
    store = _store(collected)
    alone, held = store.analysis("real"), store.analysis("real", "synthetic")
    in_memory = load_run(collected / "real")
    assert size_of(in_memory) >= in_memory.steps.nbytes
    assert alone.ledger is not None
    assert size_of(alone) > size_of(alone.run) + alone.ledger.arrival.nbytes
    assert size_of(held) > size_of(alone) + size_of(held.run)


def test_runs_in_memory_and_several_stores_are_listed_together(
    store_folder: Path, tmp_path: Path, loads: list[str]
) -> None:
    collect_into(tmp_path / "more", replace(REAL, seed=9))
    memory = run_of_job(tmp_path / "logs", replace(REAL, seed=5, facts={"run_name": "in memory"}))
    store = _store(store_folder, tmp_path / "more", runs=(memory,))
    ids = [run.id for run in store.runs()]
    assert ids[0] == "real"
    assert len(set(ids)) == len(ids) == 6
    assert {"real~2", "synthetic~2", "real~3"} <= set(ids)
    # Found by facts, in whichever store it is.
    assert store.baseline_of("real") == "synthetic~2"
    assert store.baseline_of("real~3") == "synthetic~2"
    loads.clear()
    single = store.analysis("real", "synthetic~2").single
    assert single is not None
    assert sorted(loads) == ["one-synthetic", "synthetic"]


def test_new_runs_appear_and_those_that_went_disappear_on_reload(
    store_folder: Path, loads: list[str]
) -> None:
    store = _store(store_folder)
    collect_into(store_folder, replace(REAL, run_id="later", seed=8))
    shutil.rmtree(store_folder / "slow")
    assert "later" not in {run.id for run in store.runs()}
    store.refresh()
    ids = {run.id for run in store.runs()}
    assert "later" in ids
    assert "slow" not in ids
    # An address that was sent by somebody whose list is newer.
    collect_into(store_folder, replace(REAL, run_id="still-later", seed=7))
    assert store.analysis("still-later").run.id == "still-later"


def test_without_a_change_nothing_is_read_again() -> None:
    source = Listed([listed(number) for number in range(10)])
    store = RunStore(sources=[source])
    for _ in range(3):
        store.refresh()
    assert source.read == 1
    source.entries.append(listed(10))
    store.refresh()
    assert source.read == 2
    assert len(store.runs()) == 11


def test_a_run_that_was_collected_again_is_analysed_again(store_folder: Path) -> None:
    store = _store(store_folder)
    before = store.analysis("real")
    manifest = store_folder / "real" / MANIFEST
    manifest.write_text(manifest.read_text() + "\n")
    assert store.analysis("real") is not before


def test_a_run_that_has_gone_meanwhile_is_a_clear_sentence(store_folder: Path) -> None:
    store = _store(store_folder)
    assert "slow" in store
    shutil.rmtree(store_folder / "slow")
    with pytest.raises(UnreadableError, match="has gone since it was listed"):
        store.analysis("slow")
    store.refresh()
    with pytest.raises(NotFoundError, match="there is no run 'slow' here"):
        store.analysis("slow")


def test_without_the_run_on_one_rank_a_run_is_analysed_all_the_same(store_folder: Path) -> None:
    store = _store(store_folder)
    shutil.rmtree(store_folder / "one-synthetic")
    analysis = store.analysis("real", "synthetic")
    assert analysis.single is None
    assert analysis.baseline is not None


def test_a_store_that_goes_away_keeps_its_list_and_says_so(store_folder: Path) -> None:
    store = _store(store_folder)
    shutil.move(store_folder, store_folder.with_name("elsewhere"))
    store.refresh()
    assert len(store.runs()) == 4
    (problem,) = store.listing().problems
    assert "cannot be read" in problem
    shutil.move(store_folder.with_name("elsewhere"), store_folder)
    store.refresh()
    assert store.listing().problems == ()


def test_a_store_without_a_catalogue_is_listed_from_its_folders(store_folder: Path) -> None:
    (store_folder / CATALOGUE).unlink()
    assert len(_store(store_folder).runs()) == 4


def test_a_run_that_cannot_be_listed_is_named(store_folder: Path) -> None:
    collect_into(store_folder, replace(REAL, run_id="damaged"))
    (store_folder / CATALOGUE).unlink()
    (store_folder / "damaged" / MANIFEST).write_text("{")
    store = _store(store_folder)
    assert len(store.runs()) == 4
    assert "damaged" in " ".join(store.listing().problems)


def test_of_a_store_only_the_runs_that_were_named_are_shown(collected: Path) -> None:
    store = RunStore(sources=[CollectedRuns(collected, {"real"})])
    assert [run.id for run in store.runs()] == ["real"]
    assert store.baseline_of("real") == "synthetic"
    assert store.analysis("real", "synthetic").baseline is not None
    assert {run.id for run in store.candidates("real")} >= {"synthetic", "slow"}


@pytest.mark.broad
def test_folders_that_somebody_has_renamed_have_safe_ids_that_differ(store_folder: Path) -> None:
    names = ["a b", "a#b", "<script>", "ä"]
    for name in names:
        shutil.copytree(store_folder / "real", store_folder / name)
    (store_folder / CATALOGUE).unlink()
    store = _store(store_folder)
    ids = [run.id for run in store.runs()]
    assert len(set(ids)) == len(ids) == 8
    assert all(run_id.isascii() and not set(run_id) & set(" #<>/%?&") for run_id in ids)
    for run_id in ids:
        assert store.analysis(run_id).steps


def test_an_entry_cannot_lead_out_of_its_store(store_folder: Path) -> None:
    source = CollectedRuns(store_folder)
    with pytest.raises(UnreadableError):
        source.load("x", listed(1, folder="../../etc"))
    assert source.place(listed(1, folder="../../etc")).parent == store_folder


def test_a_run_is_loaded_and_analysed_once_however_many_ask(
    collected: Path, loads: list[str]
) -> None:
    store = _store(collected)
    together = threading.Barrier(8)

    def ask(_: int) -> Analysis:
        together.wait(PATIENCE_SECONDS)
        return store.analysis("slow")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert sorted(loads) == ["one-synthetic", "slow"]
    assert all(answer is answers[0] for answer in answers)


def test_a_slow_run_keeps_neither_the_list_nor_others_waiting(collected: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        if run.id == "slow":
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
        return analyse(run, baseline, single)

    store = RunStore([], slow, sources=[CollectedRuns(collected)])
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(store.analysis, "slow")
        assert begun.wait(PATIENCE_SECONDS)
        store.refresh()
        assert len(store.listing().matching(parse_search(""))) == 4
        assert store.analysis("real").run.id == "real"
        assert not waiting.done()
        go_on.set()
        assert waiting.result(PATIENCE_SECONDS).run.id == "slow"


def test_many_threads_may_ask_while_runs_come() -> None:
    source = Listed([listed(number) for number in range(200)])
    store = RunStore(sources=[source])

    def ask(number: int) -> int:
        if number % 4 == 0:
            source.entries = [*source.entries, listed(1000 + number)]
            store.refresh()
        runs = store.listing().matching(parse_search("training"), "gap")
        return len(runs)

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(ask, range(64)))
    assert all(200 <= count <= 216 for count in counts)
    store.refresh()
    assert len(store.runs()) == len(source.entries)


def test_of_many_runs_those_of_the_same_job_are_offered_as_baselines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_store, "_MOST_CANDIDATES", 5)
    others = [listed(number, job="another") for number in range(10, 30)]
    store = RunStore(sources=[Listed([listed(1), listed(2), *others])])
    assert [run.id for run in store.candidates("run-00001")] == ["run-00001", "run-00002"]
    chosen = [run.id for run in store.candidates("run-00001", "run-00015")]
    assert chosen[0] == "run-00015"


def test_an_empty_store_is_empty() -> None:
    source: RunSource = Listed([])
    store = RunStore(sources=[source])
    assert not store.runs()
    assert not RunStore([]).runs()
    assert "x" not in store
