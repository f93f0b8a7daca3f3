"""The steps of Timelines are counted by their tensors' repetitions, on 2 to 60 ranks."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.timelines import GENERATIONS, GRADIENTS, METRIC, Generation, Job, Tensor, start, train

from stallscope.analysis.network.tensors import Tensors, tensors
from stallscope.analysis.network.tensors.repetitions import Negotiations, step_positions
from stallscope.analysis.tuning.recommend import advise_on_timeline
from stallscope.parsers.formats.horovod_timeline import TimelineReader

NEW = GENERATIONS["0.28, Gloo"]
OLD = GENERATIONS["0.18, MPI on GPUs"]


def tensors_of(job: Job, lost: int = 0, block_bytes: int = 1 << 20) -> Tensors:
    data = job.data
    data = data[: len(data) - lost]
    return tensors(TimelineReader("timeline.json", io.BytesIO(data), block_bytes))


def check(job: Job, lost: int = 0) -> Tensors:
    """Check that all steps are found where they start."""
    result = tensors_of(job, lost)
    assert result.no_steps == ""
    assert result.steps.start_us.tolist() == job.starts_us
    return result


# -- generations and ranks ------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 8, 24, 60])
@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=GENERATIONS)
def test_steps_of_every_generation(generation: Generation, marks: bool, ranks: int) -> None:
    job = Job(generation, ranks, marks)
    start(job)
    train(job, 25)
    steps = check(job).steps
    assert steps.tensors.tolist() == [6] * 25
    assert steps.reductions.tolist() == [3] * 25
    assert steps.step_ms[:-1] == pytest.approx(np.diff(job.starts_us) / 1e3)
    assert np.isnan(steps.step_ms[-1])
    assert (steps.transfer_ms > 0).all()
    assert (steps.wait_ms > 0).all() == bool(generation.before)


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=GENERATIONS)
@pytest.mark.parametrize("names", ["named", "unnamed", "one name"])
def test_two_tensors_in_every_step(generation: Generation, names: str) -> None:
    job = Job(generation, 4)
    start(job)
    for step in range(25):
        for number, shape in enumerate([(512, 10), (10,)]):
            name = {
                "named": f"DistributedMomentum_Allreduce/HorovodAllreduce_grads_{number}_0",
                "unnamed": f"allreduce.noname.{2 * step + number + 1}",
                "one name": "HorovodAllreduce",
            }[names]
            (job.reduce if number else job.step)([(name, shape)])
    says = advise_on_timeline(check(job))
    assert (says.steps, says.no_steps, says.reductions) == (25, "", 50)


@pytest.mark.parametrize("generation", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("lost", [1, 2, 30, 200, 700, 1500, 3000])
def test_a_killed_job_has_the_steps_of_which_a_tensor_was_negotiated(
    generation: Generation, lost: int
) -> None:
    job = Job(generation, 4)
    start(job)
    train(job, 25)
    steps = tensors_of(job, lost).steps
    data = job.data[: len(job.data) - lost]
    last = job.starts_us[-1]
    began = 24 + (f'"ts": {last}, "pid"'.encode() in data)
    assert steps.start_us.tolist() == job.starts_us[:began]


@pytest.mark.parametrize("generation", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("lost", [0, 40, 200])
def test_a_job_that_was_started_again_goes_on(generation: Generation, lost: int) -> None:
    job = Job(generation, 4)
    start(job)
    train(job, 7)
    # The kill comes when the first tensor of a step was reduced.
    job.step(GRADIENTS[:1])
    job.start_again(lost)
    start(job)
    train(job, 9)
    steps = tensors_of(job).steps
    assert len(steps) == 17
    assert np.flatnonzero(np.isnan(steps.step_ms)).tolist() == [7, 16]
    if not generation.old:
        assert steps.start_us.tolist() == job.starts_us


# -- repetitions that are steps or not -------------------------------------------------------------


def metrics(job: Job) -> None:
    """Average metrics after every epoch: Keras gives all of them one name."""
    for _ in range(5):
        train(job, 6)
        for _ in range(4):
            job.reduce([METRIC])


def logged_loss(job: Job) -> None:
    for step in range(30):
        job.step(GRADIENTS)
        job.reduce([("allreduce.loss", ())])
        if step % 10 == 9:
            job.reduce([("allreduce.mean_loss", ())])


def evaluation(job: Job) -> None:
    """Average two metrics over each batch of an evaluation, which has more batches than an epoch."""
    for _ in range(3):
        train(job, 10)
        for _ in range(40):
            job.reduce([("allreduce.val_loss", ())])
            job.reduce([("allreduce.val_accuracy", ())])


def evaluation_first(job: Job) -> None:
    """Try the evaluation before training, as Lightning does."""
    for _ in range(3):
        job.reduce([("allreduce.val_loss", ())])
    evaluation(job)


def confusion(job: Job) -> None:
    """Sum up a matrix of 10 classes over each batch of an evaluation."""
    for _ in range(3):
        train(job, 10)
        for _ in range(15):
            job.reduce([("allreduce.confusion", (10, 10))])


def averaged_model(job: Job) -> None:
    """Average all parameters after each epoch."""
    for _ in range(4):
        train(job, 25)
        for name, shape in GRADIENTS:
            job.reduce([(f"{name}.average", shape)])


def several_times(job: Job) -> None:
    """Reduce one of the gradients twice in every step."""
    for _ in range(30):
        job.step(GRADIENTS[:3], GRADIENTS[3:], GRADIENTS[2:3])


def unfreezing(job: Job) -> None:
    """Train the last layer, then all of them, then all but the last one."""
    for trained in (GRADIENTS[:2], GRADIENTS, GRADIENTS[2:]):
        train(job, 10, trained)


def two_networks(job: Job) -> None:
    """Train two networks in every step, one after the other."""
    second_network = [(f"other.{name}", shape) for name, shape in GRADIENTS]
    for _ in range(20):
        job.step(GRADIENTS)
        job.reduce(second_network)


def joined(job: Job) -> None:
    train(job, 20)
    job.reduce([("join.noname", ())], "JOIN")


def moved_rounds(job: Job) -> None:
    """Let the order of tensors change from step to step."""
    for step in range(20):
        shift = step % 6
        job.step(GRADIENTS[shift:], GRADIENTS[:shift]) if shift else job.step(GRADIENTS)


CASES = [
    metrics,
    logged_loss,
    evaluation,
    evaluation_first,
    confusion,
    averaged_model,
    several_times,
    unfreezing,
    two_networks,
    joined,
    moved_rounds,
]


@pytest.mark.parametrize("ranks", [2, 60])
@pytest.mark.parametrize("generation", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_repetitions_of_most_bytes(
    case: Callable[[Job], None], generation: Generation, ranks: int
) -> None:
    job = Job(generation, ranks)
    start(job)
    case(job)
    check(job)


@pytest.mark.parametrize("block_bytes", [3_000, 50_000])
@pytest.mark.parametrize("case", CASES)
def test_blocks_of_any_size_have_the_same_steps(
    case: Callable[[Job], None], block_bytes: int
) -> None:
    job = Job(NEW, 3)
    start(job)
    case(job)
    whole, blocks = tensors_of(job).steps, tensors_of(job, block_bytes=block_bytes).steps
    for column, values in vars(whole).items():
        np.testing.assert_allclose(getattr(blocks, column), values, rtol=1e-5)


@pytest.mark.parametrize("kind", ["ADASUM", "REDUCESCATTER", "ALLTOALL", "ALLGATHER"])
def test_steps_of_other_operations(kind: str) -> None:
    job = Job(NEW, 4)
    start(job)
    train(job, 12, kind=kind)
    says = advise_on_timeline(check(job))
    assert says.steps == 12
    # Their times are not those of allreduces.
    assert (says.negotiation_ms, says.transfer_ms) == (None, None)


def test_gathered_objects_are_no_steps_of_a_job_that_reduces() -> None:
    job = Job(NEW, 4)
    for step in range(20):
        job.step(GRADIENTS)
        for part in range(2):
            job.reduce([(f"allgather_object.{part}", (100_000 + step,))], "ALLGATHER")
    check(job)


def test_unnamed_tensors_may_lack_their_sizes_at_the_end() -> None:
    job = Job(OLD, 4)
    for step in range(12):
        named = [
            (f"allreduce.noname.{6 * step + n}", shape) for n, (_, shape) in enumerate(GRADIENTS)
        ]
        job.step(*[[tensor] for tensor in named])
    assert len(tensors_of(job, lost=400).steps) == 12


# -- timelines without steps -------------------------------------------------------------------------


def unnamed(job: Job, tensors: list[Tensor], steps: int = 20) -> None:
    for step in range(steps):
        for number, (_, shape) in enumerate(tensors):
            name = f"allreduce.noname.{len(tensors) * step + number}"
            (job.reduce if number else job.step)([(name, shape)])


def alike(job: Job) -> None:
    unnamed(job, [("", (64, 64))] * 2)


def alike_halves(job: Job) -> None:
    unnamed(job, [("", (64, 64)), ("", (64,))] * 4)


def alike_with_one_name(job: Job) -> None:
    for _ in range(20):
        job.step([("HorovodAllreduce", (64, 64))])
        for shape in [(64,), (64, 64), (64,)]:
            job.reduce([("HorovodAllreduce", shape)])


def one_step(job: Job) -> None:
    train(job, 1)


def new_names(job: Job) -> None:
    for step in range(20):
        job.step([(f"gradient_{step}_{name}", shape) for name, shape in GRADIENTS])


def two_optimizers(job: Job) -> None:
    """Train one network five times as often as the other."""
    generator = [(f"generator.{name}", shape) for name, shape in GRADIENTS]
    for step in range(60):
        job.step(GRADIENTS)
        if step % 5 == 4:
            job.reduce(generator)


def large_embedding(job: Job) -> None:
    """Reduce the tensor with most bytes twice in every step, as the network's input and output."""
    embedding = ("allreduce.embedding", (1000, 1000))
    for _ in range(20):
        job.step([*GRADIENTS, embedding])
        job.reduce([embedding])


def nothing(job: Job) -> None:
    del job


@pytest.mark.parametrize("generation", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (alike, "sizes do not show"),
        (alike_halves, "sizes do not show"),
        (alike_with_one_name, "sizes do not show"),
        (one_step, "fewer than two steps"),
        (new_names, "names differ"),
        (two_optimizers, "two optimizers"),
        (large_embedding, "different rates"),
        (nothing, "no reduction"),
    ],
)
def test_unknown_steps_have_a_reason(
    case: Callable[[Job], None], reason: str, generation: Generation
) -> None:
    job = Job(generation, 4)
    start(job)
    case(job)
    says = advise_on_timeline(tensors_of(job))
    assert reason in says.no_steps
    assert (says.steps, says.negotiation_ms, says.wait_ms) == (None, None, None)


@pytest.mark.broad
@settings(max_examples=300, deadline=None)
@given(
    order=st.lists(st.integers(0, 4), max_size=80),
    sizes=st.lists(st.sampled_from([np.nan, 0, 4, 100, 5000]), min_size=5, max_size=5),
    names=st.lists(st.sampled_from(["a", "b", "x.noname.1", "x.noname.2"]), min_size=5, max_size=5),
    restart=st.integers(0, 80),
)
def test_any_order_of_tensors_has_steps_or_a_reason(
    order: list[int], sizes: list[float], names: list[str], restart: int
) -> None:
    jobs = np.unique([0, min(restart, max(len(order) - 1, 0))])
    log = Negotiations(np.array(order, np.int64), np.full(len(order), 10), jobs)
    positions, unknown = step_positions(log, np.array(sizes), names)
    assert (unknown == "") == (len(positions) > 0)
    assert (np.diff(positions) > 0).all()
    assert (positions < len(order)).all()


def test_unnamed_tensors_are_to_be_named() -> None:
    job = Job(NEW, 4)
    unnamed(job, [("", (64, 64)), ("", (10,))])
    advice, *_ = advise_on_timeline(tensors_of(job)).advice
    assert "Name the tensors" in advice.action
