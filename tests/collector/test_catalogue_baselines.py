"""The catalogue finds the baselines of a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from support.catalogues import JOB, SYNTHETIC, collected
from support.step_logs import run_of_job

from stallscope.analysis import analyse
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.listing import Baselines, has_fault_as_baseline
from stallscope.collector.store.layout import CATALOGUE, SUMMARY
from stallscope.collector.store.loading import load_run


def at(day: int) -> dict[str, object]:
    """Return the start of a run."""
    return {
        "anchor": {"monotonic_ns": 1, "wall_ns": 1_790_000_000_000_000_000 + day * 86400 * 10**9}
    }


def test_a_baseline_is_the_same_job_on_synthetic_data(store: Path) -> None:
    entry = collected(store)
    others = {
        "another-size": replace(JOB, ranks=3),
        "another-batch": replace(JOB, batch_size=64),
        "another-model": replace(JOB, facts={"model": "other"}),
        "another-optimizer": replace(JOB, facts={"optimizer": "Adam"}),
        "real": JOB,
    }
    for name, job in others.items():
        facts = {**job.facts, **({} if name == "real" else SYNTHETIC)}
        collected(store, replace(job, run_id=name, facts=facts))
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(entry) is None
    # It may be later than the run that it belongs to.
    base = collected(store, replace(JOB, run_id="base", facts=SYNTHETIC))
    run = load_run(store / "run-a")
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(entry) == base
        assert Baselines(catalogue).of(run) == base
        assert Baselines(catalogue).of(base) is None
        assert Baselines(catalogue).single_of(run) is None
    single = collected(store, replace(JOB, ranks=1, run_id="one", facts=SYNTHETIC))
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).single_of(run) == single
        assert Baselines(catalogue).single_of(single) is None


def test_of_several_baselines_the_nearest_and_then_the_newest_is_taken(store: Path) -> None:
    versions = {"versions": {"horovod": "0.28.1"}}
    entry = collected(store, replace(JOB, facts={**versions, **at(1)}))
    for name, facts in {
        "near-old": {**versions, **at(2)},
        "near-new": {**versions, **at(3)},
        "far-newest": {"versions": {"horovod": "0.19.0"}, **at(4)},
    }.items():
        collected(store, replace(JOB, run_id=name, facts={**facts, **SYNTHETIC}))
    for expected in ("near-new", "near-old", "far-newest", None):
        with Catalogue.open(store) as catalogue:
            baseline = Baselines(catalogue).of(entry)
            assert (None if baseline is None else baseline.id) == expected
            if baseline is not None:
                catalogue.remove(baseline.id)
                shutil.rmtree(store / baseline.folder)


def test_an_older_baseline_is_taken_if_the_newer_one_has_a_fault_of_its_own(store: Path) -> None:
    entry = collected(store, replace(JOB, facts=at(1)))
    fit = collected(store, replace(JOB, run_id="fit", facts={**SYNTHETIC, **at(2)}))
    late = {(rank, "input"): 200.0 for rank in range(JOB.ranks)}
    for name, slow in (("slow-rank", {(1, "compute"): 200.0}), ("slow-loaders", late)):
        job = replace(JOB, run_id=name, slow=slow, facts={**SYNTHETIC, **at(3)})
        assert collected(store, job, analysed=True).summary.fault
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(entry) == fit


def test_the_entry_of_a_run_says_what_its_analysis_says_of_it_as_a_baseline(store: Path) -> None:
    late = {(rank, "input"): 200.0 for rank in range(JOB.ranks)}
    jobs = {
        "fit": JOB,
        "slow-network": replace(JOB, allreduce_ms=400.0),
        "slow-rank": replace(JOB, slow={(1, "compute"): 200.0}),
        "slow-loaders": replace(JOB, slow=late),
    }
    for name, job in jobs.items():
        entry = collected(store, replace(job, run_id=name), analysed=True)
        analysis = analyse(run_of_job(store.parent / name, job))
        compared = analyse(
            run_of_job(store.parent / f"{name}-too", replace(job, run_id="b", seed=job.seed + 1)),
            analysis,
        )
        assert compared.match is not None
        assert has_fault_as_baseline(entry) == (compared.match.faulty is not None)
        assert has_fault_as_baseline(entry) == name.startswith(("slow-rank", "slow-loaders"))


def test_an_older_entry_that_knows_of_a_fault_only_is_read(store: Path) -> None:
    slow = replace(JOB, slow={(1, "compute"): 200.0})
    entry = collected(store, slow, analysed=True)
    path = store / "run-a" / SUMMARY
    content = json.loads(path.read_bytes())
    del content["fault_as_baseline"]
    path.write_text(json.dumps(content))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        older = catalogue.find("run-a")
    assert older is not None
    assert older == replace(entry, summary=replace(entry.summary, fault_as_baseline=None))
    assert has_fault_as_baseline(older)


def test_a_run_without_a_recorded_model_has_no_baseline(store: Path) -> None:
    entry = collected(store, replace(JOB, facts={"model": None}))
    for ranks in (1, 2):
        facts = {"model": None, **SYNTHETIC}
        collected(store, replace(JOB, ranks=ranks, run_id=f"base-{ranks}", facts=facts))
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(entry) is None
        assert Baselines(catalogue).single_of(entry) is None
