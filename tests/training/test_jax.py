"""JAX in custom loops, in one process and in two: the log has the times that the host can see."""

from __future__ import annotations

import pytest
from support.needing import need
from training.environments import KERAS3, needs
from training.recorded import (
    RESOLUTION_NS,
    TIMESTAMPS,
    Recorded,
    check_steps,
    fits_of,
    record_cases,
)

from stallscope.analysis import analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

HOST = ("data",)


def launched(factory: pytest.TempPathFactory, kind: str) -> Recorded:
    needs(KERAS3)
    return record_cases(
        factory.mktemp("jax"),
        "jax_cases.py",
        kind,
        environment=KERAS3,
        OMP_NUM_THREADS="1",
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of one process."""
    return launched(tmp_path_factory, "alone")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two processes."""
    return launched(tmp_path_factory, "ranks")


@pytest.mark.parametrize(
    ("case", "steps", "samples"),
    # In a batch for pmap, parts cannot be distinguished from samples.
    [("plain", 24, 16), ("slow_input", 120, 16), ("slow_compute", 120, 16), ("pmapped", 12, None)],
)
def test_processes_are_the_ranks_of_one_run(
    ranks: Recorded, case: str, steps: int, samples: int | None
) -> None:
    fits = ranks.fits(case)
    for fit in fits:
        check_steps(fit, 0, steps, timestamps=HOST)
        assert fit.steps["samples"].dropna().unique().tolist() == ([samples] if samples else [])
        assert fit.facts["framework"] == "jax"
        assert fit.facts["gradients_reduced"] is None
        assert "compiled step" in fit.facts["stamps"]["reason"]
    (launch,) = {fit.facts["launch"] for fit in fits}
    assert launch.startswith("jax.distributed:localhost:")
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_recording_does_not_change_the_weights(alone: Recorded, ranks: Recorded) -> None:
    for recorded, rank in ((alone, 0), (ranks, 0), (ranks, 1)):
        assert recorded.unchanged_by_recording("plain", rank)


def test_slow_input_is_input_of_its_rank(ranks: Recorded) -> None:
    fast, slow = fits_of(ranks.run("slow_input"))
    assert slow.median_ms("begin", "data") > 30
    assert fast.median_ms("begin", "data") < 10
    # The other rank waits inside its compiled step.
    assert fast.median_ms("data", "end") > 30


@pytest.mark.parametrize("processes", [1, 2])
def test_a_model_of_flax_and_optax_is_recorded(
    request: pytest.FixtureRequest, processes: int
) -> None:
    need(any(KERAS3.glob("lib/*/site-packages/flax")), "there is no Flax in .venv-keras3")
    recorded: Recorded = request.getfixturevalue("alone" if processes == 1 else "ranks")
    recorded.clean("flax_and_optax", processes)
    result, fits = recorded.result("flax_and_optax"), recorded.fits("flax_and_optax", processes)
    assert result["last"] < result["first"]
    for fit in fits:
        check_steps(fit, 0, 60, timestamps=TIMESTAMPS if processes == 1 else HOST)
        assert fit.facts["versions"]["flax"]
        assert fit.facts["versions"]["optax"]
    assert fits[-1].median_ms("begin", "data") > 30


@pytest.mark.parametrize(
    ("case", "known"), [("slow_input", " and rank 1 "), ("slow_compute", "no rank more than")]
)
def test_no_rank_is_blamed_if_waiting_looks_like_compute(
    ranks: Recorded, case: str, known: str
) -> None:
    analysis = analyse(ranks.run(case))
    assert analysis.bottleneck.kind == "insufficient_data"
    assert analysis.bottleneck.ranks == ()
    assert not any(straggler.ranks for straggler in analysis.stragglers)
    assert known in analysis.bottleneck.evidence


def test_the_input_of_each_rank_is_known(ranks: Recorded) -> None:
    analysis = analyse(ranks.run("slow_input"))
    fast, slow = (rank.input_ms for rank in analysis.ranks)
    assert fast is not None
    assert slow is not None
    assert slow > 30 > fast
    assert analysis.printed is not None
    assert analysis.printed.input_ms is not None
    assert analysis.printed.input_ms.value == pytest.approx((slow + fast) / 2)


def test_slow_input_on_all_ranks_is_the_verdict(ranks: Recorded) -> None:
    verdict = analyse(ranks.run("slow_input_everywhere")).bottleneck
    assert (verdict.kind, verdict.ranks, verdict.fault) == ("input", (), True)
    assert "All ranks wait at least" in verdict.evidence


def test_synthetic_data_is_recorded_with_the_speed_of_the_loader(
    ranks: Recorded, alone: Recorded
) -> None:
    for recorded, size in ((ranks, 2), (alone, 1)):
        run = recorded.run("synthetic")
        assert run.steps.num_rows == size * 24
        assert {measurement.rank for measurement in run.input_times} == set(range(size))
        result = recorded.result("synthetic")
        assert result["kind"] == "list"
        assert result["samples_per_second"] > 0


def test_one_process_needs_no_reduction(alone: Recorded) -> None:
    fit = alone.fit_of_one_process("plain")
    check_steps(fit, 0, 24)
    assert list(fit.steps["reduced"]) == list(fit.steps["ready"]) == list(fit.steps["end"])
    assert fit.facts["stamps"]["ready"].startswith("end of the whole step")
    assert fit.facts["versions"]["jax"]
    assert (fit.facts["devices"], fit.facts["batch_size"]) == (["CPU"], 16)


def test_a_step_lasts_until_its_results_are_ready_while_the_host_runs_ahead(
    alone: Recorded,
) -> None:
    fit = alone.fit("host_ahead")
    check_steps(fit, 0, 20)
    # The training saw that the results of most steps were not ready when it continued.
    assert alone.result("host_ahead")["behind"] > 10
    waiting_for_data = (fit.steps["data"] - fit.steps["begin"]).median()
    assert waiting_for_data == 0
    between = fit.steps["begin"].to_numpy()[1:] - fit.steps["end"].to_numpy()[:-1]
    assert (between < RESOLUTION_NS).mean() > 0.5


def test_python_can_end_while_the_device_still_computes(alone: Recorded) -> None:
    # Python would abort if a thread was inside JAX: then the launch would have failed.
    assert alone.result("device_behind_at_the_end")["behind"]
    assert len(alone.fit("device_behind_at_the_end").numbers) < 20


def test_slow_input_is_input(alone: Recorded) -> None:
    assert alone.fit("slow_input_alone").median_ms("begin", "data") > 30
    assert analyse(alone.run("slow_input_alone")).bottleneck.kind == "input"


def test_iterations_without_results_are_summed(alone: Recorded) -> None:
    fit = alone.fit("accumulation")
    check_steps(fit, 0, 8)
    assert set(fit.steps["micro"]) == {3}
    assert set(fit.steps["samples"]) == {48}


def test_epochs_validation_and_checkpoints_are_intervals(alone: Recorded, ranks: Recorded) -> None:
    for fit in [
        alone.fit("validation_and_checkpoint"),
        *ranks.fits("validation_and_checkpoint"),
    ]:
        assert fit.kinds == ["epoch", "validation", "checkpoint"] * 2 + ["end"]
        assert list(fit.intervals["step"]) == [12] * 3 + [24] * 4
        assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12
        assert (fit.intervals["end"] >= fit.intervals["begin"]).all()


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("without_results", "log.results was never called"),
        ("without_stages", "switched off with stages=False"),
    ],
)
def test_without_results_a_step_has_the_hosts_times_and_the_reason(
    alone: Recorded, case: str, reason: str
) -> None:
    fit = alone.fit(case)
    check_steps(fit, 0, 24, timestamps=HOST)
    assert reason in fit.facts["stamps"]["reason"]


def test_steps_continue_from_a_given_number(alone: Recorded) -> None:
    # The step in which the loop ends counts; later ones are not recorded.
    check_steps(alone.fit("numbered"), 100, 5)


@pytest.mark.parametrize(
    ("case", "message"),
    [("donated", "the next step deletes these results"), ("recorder_breaks", "broken on purpose")],
)
def test_a_fault_costs_the_log_and_nothing_else(alone: Recorded, case: str, message: str) -> None:
    assert message in alone.warning(case)
    assert alone.result(case)["weights"] == alone.result("plain")["weights"]
    [run] = read(str(alone.logs(case)))
    assert run.steps.num_rows < 24
