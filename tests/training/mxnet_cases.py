"""Train small Gluon models, one per case, each with its own log folder.

    horovodrun -np 2 python mxnet_cases.py OUT [CASE …]     cases of two ranks
    python mxnet_cases.py OUT [CASE …]                      cases of one process

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
from case_runner import REPEATED, Cases, Stopwatch, digest, raised_by, run_cases
from mxnet import autograd, gluon

from stallscope.collector.recorder.mxnet import mxnet_recording
from stallscope.collector.recorder.mxnet.gluon_iterations import REDUCTIONS
from stallscope.mxnet import StepLogger

RANKED = "HOROVOD_RANK" in os.environ
if RANKED:
    import horovod.mxnet as hvd

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Much longer than the rest of a step, on a busy machine as well.
SLOW_SECONDS = 0.04

RANKS, ALONE = Cases(), Cases()
ranked, alone = RANKS.add, ALONE.add


class Sleep(mx.operator.CustomOp):
    """The identity, with a delay in the backward pass when the engine runs it."""

    #: How many backward passes have ended.
    ended = 0

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0])

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        time.sleep(self.seconds)
        Sleep.ended += 1
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("sleep")
class SleepProp(mx.operator.CustomOpProp):
    def __init__(self, seconds: str) -> None:
        super().__init__(need_top_grad=True)
        self.seconds = float(seconds)

    def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> Sleep:
        return Sleep(self.seconds)


class Net(gluon.nn.Block):
    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        with self.name_scope():
            self.first = gluon.nn.Dense(64, activation="relu", in_units=INPUTS)
            self.second = gluon.nn.Dense(CLASSES, in_units=64)

    def forward(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        if self.seconds:
            hidden = mx.nd.Custom(hidden, op_type="sleep", seconds=str(self.seconds))
        return self.second(hidden)


class Case:
    """The folder and the data of a case."""

    def __init__(self, folder: Path) -> None:
        self.rank = hvd.rank() if RANKED else 0
        self.folder = folder
        #: Of the last rank.
        self.slow_seconds = SLOW_SECONDS if self.rank == 1 or not RANKED else 0.0

    def loader(self, steps: int = STEPS) -> Any:
        mx.random.seed(7 + self.rank)
        inputs = mx.nd.random.uniform(shape=(steps * BATCH, INPUTS))
        labels = mx.nd.random.randint(0, CLASSES, shape=(steps * BATCH,)).astype("float32")
        return gluon.data.DataLoader(gluon.data.ArrayDataset(inputs, labels), BATCH)


def open_answers() -> Iterator[Any]:
    """Yield the engine's answers about the iteration that is recorded."""
    for recording in mxnet_recording.open_recordings:
        for reduction in (recording._iteration or [])[REDUCTIONS:]:
            yield from reduction


class Training:
    def __init__(self, seconds: float = 0.0, grad_req: str = "write") -> None:
        mx.random.seed(11)
        self.net = Net(seconds)
        self.net.initialize(mx.init.Xavier())
        parameters = self.net.collect_params()
        parameters.setattr("grad_req", grad_req)
        if RANKED:
            hvd.broadcast_parameters(parameters, root_rank=0)
            self.trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 0.1})
        else:
            self.trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1}, kvstore=None)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def backward(self, inputs: Any, labels: Any) -> Any:
        with autograd.record():
            loss = self.loss(self.net(inputs), labels)
        loss.backward()
        return loss

    def step(self, inputs: Any, labels: Any) -> None:
        self.backward(inputs, labels)
        self.trainer.step(BATCH)

    def waiting_step(self, inputs: Any, labels: Any) -> None:
        """Wait for the engine, as a training that prints its loss, and for its answers to the recorder.

        On a busy machine the engine may let the training go on before it reads the clock.
        """
        self.step(inputs, labels)
        mx.nd.waitall()
        while not all(answer is None or answer.is_there for answer in open_answers()):
            time.sleep(0)

    def run(self, loader: Any, epochs: int = 2, step: Any = None) -> Any:
        for _ in range(epochs):
            for inputs, labels in loader:
                (step or self.step)(inputs, labels)
        return self.seen()

    def seen(self) -> dict[str, Any]:
        weights = digest(p.data().asnumpy() for p in self.net.collect_params().values())
        ours = [name for name in ("_allreduce_grads",) if name in vars(self.trainer)]
        return {"weights": weights, "ours": ours}


def recorded(
    case: Case, training: Training, loader: Any = None, step: Any = None, **options: Any
) -> Any:
    """Record two epochs, with pauses after each."""
    stopwatch = Stopwatch()
    with StepLogger(case.folder / "logs", trainer=training.trainer, **options) as log:
        for _ in range(2):
            watched = log.watch(loader or case.loader())
            training.run(stopwatch.watch(watched), epochs=1, step=step)
            with log.validation():
                # A validation without any time would not be in the log.
                time.sleep(0.001)
            with log.checkpoint():
                training.net.save_parameters(str(case.folder / f"saved-{case.rank}"))
    return {**training.seen(), "stopwatch": stopwatch.times}


@ranked
@alone
def plain(case: Case) -> Any:
    silent = Training().run(case.loader())["weights"]
    return {**recorded(case, Training(), run_name="plain run", probe_input=6), "silent": silent}


@ranked
@alone
def timed(case: Case) -> Any:
    training = Training()
    return recorded(case, training, step=training.waiting_step)


@ranked
@alone
def raises(case: Case) -> Any:
    training, iterations = Training(), itertools.count()

    def step(inputs: Any, labels: Any) -> None:
        if next(iterations) == 5:
            raise OSError("the disk is gone")
        training.step(inputs, labels)

    raised = raised_by(lambda: recorded(case, training, step=step))
    return {**training.seen(), "raised": raised}


@ranked
@alone
def resumed(case: Case) -> Any:
    """The trainer has counted the steps of an epoch without a recorder."""
    training = Training()
    training.run(case.loader(), epochs=1)
    return recorded(case, training)


@alone
def given_batch_size(case: Case) -> Any:
    return recorded(case, Training(), batch_size=BATCH)


@ranked
@alone
def slow_compute(case: Case) -> Any:
    """The engine sleeps in the backward pass; the host does not wait."""
    return recorded(case, Training(case.slow_seconds))


@ranked
def overlap(case: Case) -> Any:
    """Count steps that reduce the last layer's gradient before the first layer's is ready."""
    training = Training(SLOW_SECONDS)
    overlaps: list[bool] = []

    def step(inputs: Any, labels: Any) -> None:
        before = Sleep.ended
        training.backward(inputs, labels)
        training.trainer.allreduce_grads()
        training.net.second.weight.grad().wait_to_read()
        overlaps.append(Sleep.ended == before)
        training.trainer.update(BATCH)
        mx.nd.waitall()

    training.run(case.loader(), step=step)
    silent = overlaps.copy()
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        training.run(log.watch(case.loader()), step=step)
    recorded = overlaps[len(silent) :]
    return {**training.seen(), "silent": sum(silent), "recorded": sum(recorded)}


@ranked
@alone
def slow_input(case: Case) -> Any:
    class Slow:
        def __iter__(self) -> Any:
            for batch in case.loader():
                time.sleep(case.slow_seconds)
                yield batch

    training = Training()
    return recorded(case, training, Slow(), step=training.waiting_step)


@ranked
@alone
def accumulation(case: Case) -> Any:
    training = Training(grad_req="add")
    iterations = itertools.count(1)

    def step(inputs: Any, labels: Any) -> None:
        training.backward(inputs, labels)
        if next(iterations) % 3 == 0:
            training.trainer.step(3 * BATCH)
            training.net.collect_params().zero_grad()

    return recorded(case, training, step=step)


@ranked
@alone
def repeats(case: Case) -> Any:
    training = Training()
    repeated = [
        (inputs.expand_dims(1).repeat(times, axis=1), labels)
        for times, (inputs, labels) in zip(REPEATED, case.loader())
    ]

    def step(inputs: Any, labels: Any) -> None:
        training.step(inputs.mean(axis=1), labels)

    return recorded(case, training, repeated, step)


@alone
def without_stages(case: Case) -> Any:
    return recorded(case, Training(), stages=False)


class Overstated(gluon.data.Sampler):  # type: ignore[misc]  # MXNet ships no types
    """A sampler that reports more samples than it has."""

    def __iter__(self) -> Any:
        return iter(range(20))

    def __len__(self) -> int:
        return 40


def twice(samples: list[Any]) -> Any:
    return gluon.data.dataloader.default_batchify_fn([*samples, *samples])


@alone
def batches_of_every_size(case: Case) -> Any:
    """Train on batches of different sizes; the result is the sizes that the loop saw."""
    training = Training()
    data = gluon.data.ArrayDataset(mx.nd.ones((2 * BATCH + 8, INPUTS)), mx.nd.zeros(2 * BATCH + 8))
    rolled = gluon.data.DataLoader(data, BATCH, last_batch="rollover")
    loaders: list[Any] = [
        gluon.data.DataLoader(data, BATCH),
        gluon.data.DataLoader(data, BATCH, shuffle=True, last_batch="discard"),
        rolled,
        rolled,
        gluon.data.DataLoader(data, BATCH, batchify_fn=twice),
        gluon.data.DataLoader(data, BATCH, sampler=Overstated()),
        gluon.data.DataLoader(data, batch_sampler=[[0, 1, 2], list(range(30)), [7]]),
        [(mx.nd.ones((size, INPUTS)), mx.nd.zeros(size)) for size in (5, 7)],
    ]
    sizes = []
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        for loader in loaders:
            for inputs, labels in log.watch(loader):
                sizes.append(len(inputs))
                training.step(inputs, labels)
    return {**training.seen(), "samples": sizes}


@alone
def wrong_trainer(case: Case) -> Any:
    training, second_training = Training(), Training()
    with StepLogger(case.folder / "logs", trainer=second_training.trainer) as log:
        training.run(log.watch(case.loader()))
    return training.seen()


@ranked
@alone
def recorder_breaks(case: Case) -> Any:
    from stallscope.collector.recorder.mxnet import gradient_probe

    def broken(*_: Any) -> tuple[()] | None:
        raise ZeroDivisionError("broken on purpose")

    silent, original = (
        Training().run(case.loader())["weights"],
        gradient_probe.GradientProbe.ask_ready,
    )
    gradient_probe.GradientProbe.ask_ready = broken  # type: ignore[assignment]
    try:
        return {**recorded(case, Training()), "silent": silent}
    finally:
        gradient_probe.GradientProbe.ask_ready = original  # type: ignore[method-assign]


@alone
def reduction_fails(case: Case) -> Any:
    """One reduction raises, and the training continues with the next batch."""
    training = Training()
    reduce, iterations = training.trainer._allreduce_grads, itertools.count(1)

    def fails_once() -> None:
        if next(iterations) == 3:
            raise ConnectionError("a peer is gone")
        reduce()

    def step(inputs: Any, labels: Any) -> None:
        with contextlib.suppress(ConnectionError):
            training.step(inputs, labels)

    training.trainer._allreduce_grads = fails_once
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        training.run(log.watch(case.loader()), epochs=1, step=step)
    # The recorder has restored the user's method.
    assert vars(training.trainer).pop("_allreduce_grads") is fails_once
    return training.seen()


@alone
def host_far_ahead(case: Case) -> Any:
    """The first step takes the engine longer than all others take the host."""
    training = Training(1.0)

    def step(inputs: Any, labels: Any) -> None:
        training.step(inputs, labels)
        training.net.seconds = 0.0

    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        training.run(log.watch(case.loader(100)), epochs=1, step=step)
    return training.seen()


@alone
def engine_takes_no_times(case: Case) -> Any:
    """Train with a C library that has other streams."""
    from stallscope.collector.recorder.mxnet import mxnet_engine

    class OtherSystem:
        def __getattr__(self, name: str) -> Any:
            return getattr(system, "getpid" if name == "getc" else name)

    # Any object with a C library's functions will do.
    system, mxnet_engine._system = mxnet_engine._system, OtherSystem()  # type: ignore[assignment]
    try:
        return recorded(case, Training())
    finally:
        mxnet_engine._system = system


@alone
def operator_fails(case: Case) -> Any:
    """Raise in an operator: MXNet raises again where the training waits for the result."""
    training = Training()

    def step(inputs: Any, labels: Any) -> None:
        with autograd.record():
            outputs = training.net(inputs)
            # No matrix has this root.
            negative = mx.nd.linalg.gemm2(outputs, outputs, transpose_a=True) * 0 - 1
            loss = training.loss(outputs, labels) + mx.nd.linalg.potrf(negative).sum()
        loss.backward()
        training.trainer.step(BATCH)
        time.sleep(SLOW_SECONDS)

    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        try:
            training.run(log.watch(case.loader()), epochs=1, step=step)
        except mx.base.MXNetError as error:
            return {"error": str(error)}
    return {"error": None}


def main() -> None:
    out, *names = sys.argv[1:]
    rank = 0
    if RANKED:
        hvd.init()
        rank = hvd.rank()
    run_cases(RANKS if RANKED else ALONE, Path(out), names, rank, Case)


if __name__ == "__main__":
    main()
