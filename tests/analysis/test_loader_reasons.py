"""Slow input is explained by the figures of the DataLoader, each cause by its own."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulator import Fault, Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.run import LoaderFigures, Run, Series

WORKERS = 4
#: Workers that keep up: half of the time they have nothing to do, and batches are ready.
KEEPS_UP: dict[str, Any] = {
    "workers": WORKERS,
    "prefetch": 2,
    "persistent": True,
    "batches": 800,
    "worker_batches": [200] * WORKERS,
    "worker_busy": [0.5] * WORKERS,
    "worker_made_us": [80_000.0] * WORKERS,
    "made": 800,
    "made_us": 80_000.0,
    "made_us_quantiles": [79_000.0, 90_000.0, 100_000.0],
    "collate_us": 4_000.0,
    "cpu_us": 60_000.0,
    "asked": 798,
    "empty": 20,
    "queued": 5.0,
    "waited_us": 300.0,
    "passed_us": 100.0,
    "blocked_us": 0.0,
    "turn_us": 500.0,
    "iterations": 2,
    "first_us": 90_000.0,
    "unmatched": 0,
    "epochs": [[0, 399, 81_000.0, 300.0], [1, 399, 79_000.0, 300.0]],
    "functions": [["Resize", 0.3], ["ToTensor", 0.1]],
    "reason": None,
}
#: Workers that cannot keep up.
STARVES = {**KEEPS_UP, "worker_busy": [0.97] * WORKERS, "empty": 760, "waited_us": 40_000.0}
NO_WORKERS = {**STARVES, "workers": 0, "worker_busy": [], "worker_made_us": [], "prefetch": None}


def a_run(
    figures: dict[str, Any], ranks: tuple[int, ...] = (0, 1), cores: int = 32, stall_ms: float = 40
) -> Run:
    """Simulate two ranks whose batches come late by these milliseconds on some ranks."""
    faults = [Fault("input", stall_ms, ranks=ranks)] if stall_ms else []
    job = Job(ranks=2, steps=400, input_ms=0.5, other_ms=0.5, compute_ms=20.0, faults=faults)
    run = simulate(job).run
    facts = {
        "framework": "pytorch",
        "loader_workers": figures["workers"],
        "persistent_workers": figures["persistent"],
        "cpu_count": cores,
        "cpus_allowed": cores,
        "batch_size": 32,
    }
    logs = []
    for log in run.logs:
        fact = figures if log.rank in ranks else KEEPS_UP
        logs.append(replace(log, facts={**log.facts, **facts, "loader": fact}))
    return replace(run, logs=tuple(logs))


def reasons(analysis: Analysis) -> dict[str, str]:
    return {reason.code: reason.text for reason in analysis.bottleneck.why}


def lines(analysis: Analysis) -> list[str]:
    return [advice.line for advice in analysis.bottleneck.advice if advice.line]


@pytest.mark.parametrize(
    ("code", "figures", "evidence"),
    [
        (
            "loader_few_workers",
            {},
            "Rank 0: 4 of 4 workers are busy 97.0% of the time, and in 95.2% of steps none has a "
            "batch ready.",
        ),
        (
            "loader_slow_worker",
            {"worker_made_us": [80_000.0, 81_000.0, 260_000.0, 79_000.0]},
            "Rank 0: worker 2 takes 260 ms for a batch, the others 80.0 ms.",
        ),
        (
            "loader_few_shards",
            {"workers_without_data": [2, 3], "worker_busy": [0.97] * 2},
            "Rank 0: 2 of 4 workers have no data: the data set has shards for 2.",
        ),
        (
            "loader_slow_shard",
            {
                "worker_made_us": [80_000.0, 81_000.0, 260_000.0, 79_000.0],
                "shards": {
                    "known": 12,
                    "us": 80_000.0,
                    "slowest": [
                        ["train-03.tar", 2, 30, 400_000.0],
                        ["train-07.tar", 2, 30, 300_000.0],
                        ["train-11.tar", 2, 30, 82_000.0],
                    ],
                },
            },
            "Rank 0: a batch of shard train-03.tar, which worker 2 reads, takes 400 ms, one of the 12 "
            "shards usually 80.0 ms; slow as well: train-07.tar.",
        ),
        (
            "loader_stage",
            {
                "kind": "tf.data",
                "stages": [
                    ["MapAndBatch", 60_000.0],
                    ["Interleave", 9_000.0],
                    ["Prefetch", 1_000.0],
                ],
            },
            "Rank 0: tf.data: MapAndBatch takes 60.0 ms per batch, 85.7% of the time of all stages; "
            "95.2% of looks find no prefetched batch.",
        ),
        (
            "loader_slow_batches",
            {"made_us_quantiles": [79_000.0, 90_000.0, 900_000.0], "blocked_us": 30_000.0},
            "Rank 0: one batch in 100 takes 900 ms or more, the median 79.0 ms; in 75.0% of the wait, "
            "later batches were ready and had to wait for their turn.",
        ),
        (
            "loader_passing",
            {"passed_us": 30_000.0, "worker_busy": [0.5] * WORKERS},
            "Rank 0: a batch that is ready takes 30.0 ms to reach training, 75.0% of the wait.",
        ),
        (
            "loader_cold",
            {"epochs": [[0, 399, 240_000.0, 9_000.0], [1, 399, 80_000.0, 300.0]]},
            "Rank 0: in the first epoch a batch takes 240 ms to make, later 80.0 ms: the data is read "
            "from storage once, then from memory.",
        ),
        (
            "loader_collating",
            {"collate_us": 60_000.0},
            "Rank 0: collating takes 75.0% of the 80.0 ms for a batch.",
        ),
        (
            "loader_waiting",
            {"cpu_us": 8_000.0},
            "Rank 0: a batch takes 80.0 ms to make, of which a worker waits 90.0%: for storage, a "
            "network, a lock or a core.",
        ),
        (
            "loader_function",
            {"functions": [["RandomResizedCrop", 0.7]]},
            "Rank 0: RandomResizedCrop takes 70.0% of the 80.0 ms for a batch.",
        ),
    ],
)
def test_each_cause_has_its_evidence(code: str, figures: dict[str, Any], evidence: str) -> None:
    analysis = analyse(a_run({**STARVES, **figures}))
    assert analysis.bottleneck.kind == "input"
    assert reasons(analysis)[code] == evidence
    # Only the figures that differ from the usual case are reasons.
    assert reasons(analysis).keys() <= {code, "loader_few_workers"}


@pytest.mark.parametrize(
    "stages",
    [
        [["batching", 20_000.0], ["collating", 21_000.0], ["formatting", 15_000.0]],
        # Training waits 40 ms.
        [["collating", 15_000.0]],
    ],
)
def test_stages_that_do_not_explain_the_wait_are_no_reason(stages: list[list[Any]]) -> None:
    assert reasons(analyse(a_run({**STARVES, "kind": "Ray Data", "stages": stages}))) == {}


@pytest.mark.parametrize(("batches", "ms"), [(7, 400_000.0), (30, 100_000.0)])
def test_a_shard_of_few_or_usual_batches_is_not_accused(batches: int, ms: float) -> None:
    shards = {"known": 12, "us": 80_000.0, "slowest": [["train-03.tar", 2, batches, ms]]}
    assert reasons(analyse(a_run({**STARVES, "shards": shards}))).keys() == {"loader_few_workers"}


def test_more_workers_than_shards_are_no_advice() -> None:
    figures = {"workers_without_data": [2, 3], "worker_busy": [0.97] * 2, "made_us": 400_000.0}
    analysis = analyse(a_run({**STARVES, **figures}))
    assert analysis.bottleneck.advice[0].action == "Divide the data into more shards"
    assert "Give the DataLoader more workers" not in {
        advice.action for advice in analysis.bottleneck.advice
    }


def test_a_loader_that_shows_nothing_is_to_be_measured() -> None:
    reason = "the loader is a Stream, not a DataLoader"
    figures = {"workers": 0, "persistent": False, "batches": 0, "reason": reason}
    analysis = analyse(a_run(figures))
    assert reasons(analysis) == {
        "loader_hidden": f"Rank 0: training does not show how batches are made: {reason}."
    }
    assert lines(analysis)[-1] == "print(measure_input(data))"


def test_the_number_of_workers_that_keep_up_is_in_the_line() -> None:
    analysis = analyse(a_run({**STARVES, "made_us": 400_000.0}))
    step = analysis.steady
    assert step is not None
    without_input = float((step.total - step.of("input", np.zeros(len(step), int))).mean()) / 1e6
    needed = math.ceil(400 / without_input)
    assert needed > WORKERS
    assert lines(analysis)[0] == (
        f"DataLoader(data, batch_size=32, num_workers={needed}, persistent_workers=True)"
    )


def test_without_cores_more_workers_are_no_advice() -> None:
    figures = {**STARVES, "made_us": 800_000.0, "cpu_us": 700_000.0}
    analysis = analyse(a_run(figures, cores=12))
    texts = [str(advice) for advice in analysis.bottleneck.advice]
    assert any("would keep up, and a rank has 5 CPU cores for them" in text for text in texts)


def test_workers_that_wait_need_no_cores() -> None:
    analysis = analyse(a_run({**STARVES, "made_us": 800_000.0, "cpu_us": 8_000.0}, cores=4))
    assert "loader_crowded" not in reasons(analysis)
    assert analysis.bottleneck.advice[0].action == "Give the DataLoader more workers"


def test_more_workers_than_cores_are_crowded() -> None:
    analysis = analyse(a_run(STARVES, cores=4))
    assert reasons(analysis)["loader_crowded"] == (
        "Rank 0: 8 workers of the host's ranks share 4 CPU cores, and have one for 75.0% of the time "
        "that a batch takes."
    )
    assert "loader_few_workers" not in reasons(analysis)


def test_workers_that_wait_for_a_core_do_not_wait_for_storage() -> None:
    figures = {"cpu_us": 8_000.0, "crowded_us": 60_000.0}
    crowded = reasons(analyse(a_run({**STARVES, **figures}, cores=4)))
    assert "loader_crowded" in crowded
    assert "loader_waiting" not in crowded
    waiting = {**figures, "crowded_us": 2_000.0}
    assert reasons(analyse(a_run({**STARVES, **waiting})))["loader_waiting"] == (
        "Rank 0: a batch takes 80.0 ms to make, of which a worker waits 87.5%: for storage, a network, "
        "or a lock."
    )


def test_a_slow_worker_that_does_not_explain_the_wait_is_not_accused() -> None:
    figures = {"worker_made_us": [1_000.0, 1_000.0, 9_000.0, 1_000.0], "made_us": 3_000.0}
    assert "loader_slow_worker" not in reasons(analyse(a_run({**STARVES, **figures})))


def test_a_loader_without_workers_says_so() -> None:
    analysis = analyse(a_run({**NO_WORKERS, "functions": []}))
    assert reasons(analysis) == {
        "loader_no_workers": "Rank 0: training makes its batches itself, 80.0 ms each, while the model "
        "waits."
    }


def busy_host(run: Run, busy_cores: float, used_by_rank: float = 0.9) -> Run:
    """Return a run with counters of each second: the host's busy cores, and those of each rank."""
    walls = 10**9 * np.arange(20, dtype=np.int64)

    def series(name: str, rank: int | None, where: str, value: float) -> Series:
        return Series(name, "cores", None, rank, where, walls, np.full(20, value))

    return replace(
        run,
        series=tuple(
            piece
            for log in run.logs
            for piece in (
                series("host_cpu", None, log.path, busy_cores),
                series("process_cpu", log.rank, log.path, used_by_rank),
            )
        ),
    )


def test_workers_take_cores_from_training_where_none_is_idle() -> None:
    run = busy_host(a_run({**NO_WORKERS, "functions": []}, cores=4), busy_cores=3.9)
    analysis = analyse(run)
    match = re.fullmatch(
        r"Host \S+: 0\.1 of its 4 CPU cores are idle; without waits for input, loading would use "
        r"(\d\.\d) more\.",
        reasons(analysis)["loader_busy_cores"],
    )
    assert match is not None
    steady = analysis.steady
    assert steady is not None
    late = float(steady.of("input", np.zeros(len(steady), int)).mean())
    step = float(steady.total.mean())
    assert float(match.group(1)) == pytest.approx(2 * 60e6 / (step - late), rel=0.05)
    texts = [str(advice) for advice in analysis.bottleneck.advice]
    assert any("loaders would take cores from training" in text for text in texts)


@pytest.mark.parametrize(
    ("cores", "busy", "facts"),
    [(32, 5.0, {}), (4, 3.9, {"cpus_allowed": 2}), (4, 3.9, {"cpu_count": None})],
)
def test_idle_or_unknown_cores_are_no_reason(
    cores: int, busy: float, facts: dict[str, Any]
) -> None:
    run = a_run({**NO_WORKERS, "functions": []}, cores=cores)
    logs = tuple(replace(log, facts={**log.facts, **facts}) for log in run.logs)
    assert list(reasons(analyse(busy_host(replace(run, logs=logs), busy)))) == ["loader_no_workers"]


def test_more_workers_than_a_busy_host_has_cores_for_are_doubtful() -> None:
    figures = {**STARVES, "made_us": 400_000.0, "cpu_us": 300_000.0}
    busy, idle = (analyse(busy_host(a_run(figures), cores)) for cores in (31.5, 3.0))
    assert list(reasons(busy)) == ["loader_few_workers", "loader_busy_cores"]
    assert list(reasons(idle)) == ["loader_few_workers"]


@pytest.mark.parametrize(
    ("worker_us", "is_slow"), [([79_000.0, 37_000.0], False), ([110_000.0, 400.0], True)]
)
def test_a_worker_is_not_slow_because_it_got_some_more_of_the_slow_batches(
    worker_us: list[float], is_slow: bool
) -> None:
    figures = {
        "workers": 2,
        "worker_busy": [0.6, 0.3],
        "worker_made_us": worker_us,
        "made_us_quantiles": [400.0, 110_000.0 if is_slow else 900.0, 550_000.0],
        "batches": 160,
        "blocked_us": 30_000.0,
    }
    assert ("loader_slow_worker" in reasons(analyse(a_run({**STARVES, **figures})))) is is_slow


def test_without_workers_the_training_process_waits_for_storage() -> None:
    figures = {**NO_WORKERS, "functions": [["Samples.read", 0.9]], "cpu_us": 4_000.0}
    analysis = analyse(a_run(figures))
    assert reasons(analysis)["loader_waiting"] == (
        "Rank 0: a batch takes 80.0 ms to make, of which the training process waits 95.0%: for "
        "storage, a network, a lock or a core; Samples.read takes 90.0% of it."
    )


def test_slow_loaders_of_several_ranks_hold_up_each_others_steps() -> None:
    # A step waits for one of the two, and meanwhile the other one's batch becomes ready.
    one_worker = {"workers": 1, "worker_busy": [0.97], "worker_made_us": [80_000.0], "empty": 260}
    assert "loader_few_workers" in reasons(analyse(a_run({**STARVES, **one_worker})))
    assert "loader_few_workers" not in reasons(
        analyse(a_run({**STARVES, **one_worker, "empty": 130}))
    )


def test_workers_that_start_in_each_epoch_are_kept_alive() -> None:
    figures = {"persistent": False, "iterations": 40, "first_us": 4_000_000.0, "asked": 760}
    analysis = analyse(a_run({**STARVES, **figures}))
    assert (
        "start again in each of 40 epochs, and the first batch takes"
        in (reasons(analysis)["loader_restarts"])
    )
    assert "persistent_workers=True" in lines(analysis)[0]


def test_a_named_rank_is_explained_by_its_own_loader() -> None:
    analysis = analyse(a_run(STARVES, ranks=(1,)))
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("imbalance", (1,))
    assert reasons(analysis)["loader_few_workers"].startswith("Rank 1: 4 of 4 workers")


def test_a_healthy_run_accuses_no_loader() -> None:
    analysis = analyse(a_run(STARVES, stall_ms=0))
    assert reasons(analysis) == {}


def test_a_loader_that_keeps_up_is_no_reason() -> None:
    assert reasons(analyse(a_run(KEEPS_UP))) == {}


@pytest.mark.parametrize(
    "fact",
    [
        None,
        [],
        {"batches": -1},
        {"batches": True},
        {"batches": 5, "workers": "two", "worker_busy": [None], "made_us_quantiles": [1.0]},
        {"batches": 5, "functions": [["f"], 3, ["g", -1.0]], "epochs": [[1], "x", [0, 1, "a", 2]]},
        {"batches": 5, "made_us": float("nan"), "asked": 2, "empty": 9},
    ],
)
def test_unusable_figures_are_unknown(fact: Any) -> None:
    figures = LoaderFigures.of(3, fact)
    if figures is not None:
        assert (figures.rank, figures.batches, figures.workers) == (3, 5, 0)
        assert (figures.busy, figures.functions, figures.epochs) == ((), (), ())
        assert figures.made_ms is None
        assert figures.empty in (None, 1.0)


def test_copies_that_are_most_of_the_input_are_no_slow_storage() -> None:
    slow = {"timed": 40, "us": 30_000.0, "us_sd": 200.0, "bytes": 26_000_000, "in_input": True}
    starving = a_run({**STARVES, "pinned": False})
    analysis = analyse(with_copies(starving, slow))
    [reason] = [reason for reason in analysis.bottleneck.why if reason.code == "loader_copies"]
    assert reason.text.startswith(
        "Rank 0: the loader copies each batch to the device, 30.0 ms of the "
    )
    assert "loader_few_workers" not in reasons(analysis)
    assert "pin_memory=True" in str(analysis.bottleneck.advice[0])
    for fact in ({**slow, "us": 300.0}, {**slow, "in_input": False}, {**slow, "timed": 3}):
        assert "loader_copies" not in reasons(analyse(with_copies(starving, fact)))


def with_copies(run: Run, fact: dict[str, Any]) -> Run:
    """Return the run with copies to the device on its first rank."""
    logs = tuple(
        replace(log, facts={**log.facts, **({} if log.rank else {"device_copies": fact})})
        for log in run.logs
    )
    return replace(run, logs=logs)
