"""JAX in custom loops, in one process and in two: the log has the times that the host can see."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import ClassVar

import pytest
from support.needing import need
from training.case_runner import REPEATED
from training.environments import KERAS3, needs
from training.recorded import (
    RESOLUTION_NS,
    Recorded,
    check_padding,
    check_steps,
    record_cases,
)
from training.recorder_contract import (
    ELEMENTS,
    RAISED,
    Case,
    LeftOut,
    RecorderContract,
    pauses_at,
    variants,
)

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

pytestmark = pytest.mark.frameworks

HOST = ("data",)
SEVERAL = "a step dispatches several computations"


def launched(
    factory: pytest.TempPathFactory, kind: str, program: str = "jax_cases.py", left_out: str = ""
) -> Recorded:
    needs(KERAS3)
    return record_cases(
        factory.mktemp("jax"),
        program,
        kind,
        environment=KERAS3,
        OMP_NUM_THREADS="1",
        LEFT_OUT=left_out,
    )


class JaxContract(RecorderContract):
    framework = "JAX with Flax, Optax or neither"
    recorder = "JAX"
    scored = "jax"
    versions = ("jax",)
    cases = (
        Case(
            "plain",
            weights=True,
            stopwatch="computes",
            run_name="plain run",
            facts={"framework": "jax", "devices": ["CPU"], "batch_size": 16},
            intervals=pauses_at(12, 24, kinds=("epoch", "validation", "checkpoint")),
        ),
        Case("accumulation", steps=8, micro=3),
        Case("repeats", elements=ELEMENTS),
        Case("slow_input", steps=12, slow="input", milliseconds=30),
        Case("raises", steps=5, raised=RAISED),
        Case("resumed", first=100),
        Case("probed", weights=True, probed=((14, 20),)),
        Case("recorder_breaks", fault="broken on purpose"),
        Case("synthetic", facts={"synthetic": False}),
    )

    def test_the_speed_of_the_loader_is_recorded(self, recorded: Recorded) -> None:
        run = recorded.run("synthetic")
        assert {time.rank for time in run.input_times} == set(range(self.ranks))
        result = recorded.result("synthetic")
        assert result["kind"] == "list"
        assert result["samples_per_second"] > 0

    def test_the_padding_of_some_batches_is_counted(self, recorded: Recorded) -> None:
        check_padding(recorded, "padded", self.ranks)

    def test_each_new_shape_is_a_reason_to_compile(self, recorded: Recorded) -> None:
        # In a step's global shape, each rank has 16 samples.
        shapes = [f"float32[{16 * self.ranks},{times},8]" for times in dict.fromkeys(REPEATED)]
        for fit in recorded.fits("repeats", self.ranks):
            assert fit.facts["compilations"]["reasons"] == [
                f"compiled: new shape or type of inputs: {new}, before {before}"
                for before, new in itertools.pairwise(shapes)
            ]

    def test_a_model_of_flax_and_optax_is_recorded(self, recorded: Recorded) -> None:
        need(any(KERAS3.glob("lib/*/site-packages/flax")), "there is no Flax in .venv-keras3")
        result, fits = (
            recorded.result("flax_and_optax"),
            recorded.fits("flax_and_optax", self.ranks),
        )
        assert result["last"] < result["first"]
        for fit in fits:
            check_steps(fit, 0, 12, timestamps=self.cases[0].timestamps)
            assert fit.facts["versions"]["flax"]
            assert fit.facts["versions"]["optax"]
        assert fits[-1].median_ms("begin", "data") > 30


class TestTwoProcesses(JaxContract):
    launch = "two processes"
    ranks = 2
    # Compute and reduction are in one compiled step.
    gradients_reduced = None
    cases = (
        *(case for case in JaxContract.cases if case.name != "accumulation"),
        Case("accumulation", steps=8, micro=3, timestamps=HOST, reason=SEVERAL),
        Case("read_before", timestamps=HOST, reason="once the results were there"),
        # In a batch for pmap, parts cannot be distinguished from samples.
        Case("pmapped", steps=12, samples=None),
    )
    cannot: ClassVar[Mapping[str, str]] = {
        "slow compute": "a slow host is named, but the compiled step does not show a slow device"
    }

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return launched(tmp_path_factory, "ranks")

    def test_ready_is_the_dispatch_of_the_step(self, recorded: Recorded) -> None:
        for fit in recorded.fits("plain"):
            assert fit.facts["stamps"]["ready"] == "own work of the host"

    def test_processes_are_of_one_launch(self, recorded: Recorded) -> None:
        (launch,) = {fit.facts["launch"] for fit in recorded.fits("plain")}
        assert launch.startswith("jax.distributed:localhost:")


class TestOneProcess(JaxContract):
    cases = (
        *variants(JaxContract.cases, "accumulation", "recorder_breaks"),
        Case("slow_compute", steps=12, slow="compute", milliseconds=30),
        Case("without_results", timestamps=HOST, reason="log.results was never called"),
        Case("without_stages", timestamps=HOST, reason="switched off with stages=False"),
        # The step in which the loop ends counts; later ones are not recorded.
        Case("left_early", steps=5),
    )
    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test_the_speed_of_the_loader_is_recorded": ("synthetic",),
        "test_the_padding_of_some_batches_is_counted": ("padded",),
        "test_each_new_shape_is_a_reason_to_compile": ("repeats",),
        "test_a_model_of_flax_and_optax_is_recorded": ("flax_and_optax",),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return launched(tmp_path_factory, "alone", left_out=left_out_of(cls))

    def test_data_that_cannot_be_fetched_ahead_is_refused_with_the_reason(
        self, recorded: Recorded
    ) -> None:
        recorded.result("probe_refused")
        reasons = {}
        for name in ("iterator", "unnamed"):
            [run] = read(str(recorded.logs("probe_refused", name)))
            reasons[name] = run.logs[0].facts["input_probe"]["refused"]
        assert reasons == {
            "iterator": "generator is an iterator: batches fetched ahead would be lost if the loop "
            "ends early",
            "unnamed": "Batches is no DataLoader; log.watch(loader, probe_input=20) names it",
        }

    def test_a_step_ends_with_its_results(self, recorded: Recorded) -> None:
        fit = recorded.fit("plain")
        assert list(fit.steps["ready"]) == list(fit.steps["end"])
        assert fit.facts["stamps"]["ready"].startswith("end of the whole step")

    def test_a_step_lasts_until_its_results_are_ready_while_the_host_runs_ahead(
        self, recorded: Recorded
    ) -> None:
        fit = recorded.fit("host_ahead")
        check_steps(fit, 0, 20)
        # The training saw that the results of most steps were not ready when it continued.
        assert recorded.result("host_ahead")["behind"] > 10
        waiting_for_data = (fit.steps["data"] - fit.steps["begin"]).median()
        assert waiting_for_data == 0
        between = fit.steps["begin"].to_numpy()[1:] - fit.steps["end"].to_numpy()[:-1]
        assert (between < RESOLUTION_NS).mean() > 0.5

    def test_python_can_end_while_the_device_still_computes(self, recorded: Recorded) -> None:
        # Python would abort if a thread was inside JAX: then the launch would have failed.
        assert recorded.result("device_behind_at_the_end")["behind"]
        assert len(recorded.fit("device_behind_at_the_end").numbers) < 20

    def test_results_that_the_next_step_deletes_cost_the_log(self, recorded: Recorded) -> None:
        assert "the next step deletes these results" in recorded.warning("donated")
        assert recorded.result("donated")["weights"] == recorded.result("plain")["weights"]
        [run] = read(str(recorded.logs("donated")))
        assert run.steps.num_rows < 24


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return launched(tmp_path_factory, "ranks", "jax_hosts_cases.py")


def analysed(recorded: Recorded, case: str) -> Analysis:
    return analyse(recorded.run(case))


@pytest.mark.parametrize(
    ("case", "stage"),
    [("slow_host", "compute"), ("slow_loader", "input"), ("slow_loader_ahead", "input")],
)
def test_the_rank_with_the_slow_host_is_named(hosts: Recorded, case: str, stage: str) -> None:
    analysis = analysed(hosts, case)
    straggler, *_ = analysis.stragglers
    assert (straggler.ranks, straggler.stage) == ((1,), stage)
    assert straggler.excess_ms.value > 30
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", stage, (1,))
    assert ("host code, from the batch's arrival" in verdict.evidence) == (stage == "compute")


def test_the_slow_part_of_a_mesh_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    recorded = launched(tmp_path_factory, "four", "jax_hosts_cases.py")
    for fit in recorded.fits("slow_host_in_mesh", ranks=4):
        row, column = divmod(fit.log.rank, 2)
        assert fit.facts["groups"] == [
            {"name": "replica", "first": column, "stride": 2, "size": 2},
            {"name": "shard", "first": 2 * row, "stride": 1, "size": 2},
        ]
    analysis = analysed(recorded, "slow_host_in_mesh")
    straggler, *_ = analysis.stragglers
    assert (straggler.ranks, straggler.stage, straggler.place) == ((2, 3), "compute", "replica 1")


def test_no_rank_is_named_for_a_slow_device(hosts: Recorded) -> None:
    for case in ("equal_ranks", "slow_device"):
        analysis = analysed(hosts, case)
        assert analysis.bottleneck.ranks == ()
        assert any("compute contains what devices do" in text for text in analysis.warnings)
    usual = compute_of(analysed(hosts, "equal_ranks"))
    first, second = compute_of(analysed(hosts, "slow_device"))
    # Of the last rank's time on its device, each has as much.
    assert min(first, second) > 2 * max(usual)
    assert abs(first - second) < 0.2 * second


def compute_of(analysis: Analysis) -> list[float]:
    """Return each rank's milliseconds of compute."""
    return [float(rank.compute_ms) for rank in analysis.ranks if rank.compute_ms is not None]
