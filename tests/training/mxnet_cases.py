"""Trains small Gluon models, one per case, each with a log folder of its own.

    horovodrun -np 2 python mxnet_cases.py OUT     cases of two ranks
    python mxnet_cases.py OUT                      cases of one process

``OUT/CASE/logs`` holds the logs, ``OUT/CASE/result-RANK.json`` what the training itself saw,
``OUT/CASE/error-RANK.txt`` what a case raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import mxnet as mx
from case_runner import Cases, Messages, run_case
from mxnet import autograd, gluon

from stallscope.mxnet import StepLogger

RANKED = "HOROVOD_RANK" in os.environ
if RANKED:
    import horovod.mxnet as hvd

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Enough for a verdict.
MANY_STEPS = 60
#: What rank 1 is slower by.
FAULT_SECONDS = 0.01
#: Much longer than what a step takes besides, on a busy machine as well.
SLOW_SECONDS = 0.04

RANKS, ALONE = Cases(), Cases()
ranked, alone = RANKS.add, ALONE.add


class Sleep(mx.operator.CustomOp):
    """Hands on what comes, and takes its time in the backward pass, as the engine runs it."""

    #: How many backward passes of all of them have ended.
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
    """Where a case writes, and what it builds its training from."""

    def __init__(self, out: Path, name: str) -> None:
        self.rank = hvd.rank() if RANKED else 0
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)

    def loader(self, steps: int = STEPS) -> Any:
        mx.random.seed(7 + self.rank)
        inputs = mx.nd.random.uniform(shape=(steps * BATCH, INPUTS))
        labels = mx.nd.random.randint(0, CLASSES, shape=(steps * BATCH,)).astype("float32")
        return gluon.data.DataLoader(gluon.data.ArrayDataset(inputs, labels), BATCH)


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

    def run(self, loader: Any, epochs: int = 2, step: Any = None) -> Any:
        for _ in range(epochs):
            for inputs, labels in loader:
                (step or self.step)(inputs, labels)
        return self.seen()

    def seen(self) -> dict[str, Any]:
        arrays = [p.data().asnumpy().tobytes() for p in self.net.collect_params().values()]
        ours = [name for name in ("_allreduce_grads",) if name in vars(self.trainer)]
        return {"weights": hashlib.sha256(b"".join(arrays)).hexdigest(), "ours": ours}


def recorded(case: Case, training: Training, loader: Any, **options: Any) -> Any:
    with StepLogger(case.folder / "logs", trainer=training.trainer, **options) as log:
        training.run(log.watch(loader))
    return training.seen()


@ranked
@alone
def plain(case: Case) -> Any:
    silent = Training().run(case.loader())["weights"]
    return {**recorded(case, Training(), case.loader(), run_name="plain run"), "silent": silent}


@alone
def given_batch_size(case: Case) -> Any:
    return recorded(case, Training(), case.loader(), batch_size=BATCH)


@ranked
def slow_compute(case: Case) -> Any:
    seconds = FAULT_SECONDS if case.rank == 1 else 0.0
    return recorded(case, Training(seconds), case.loader(MANY_STEPS))


@ranked
def overlap(case: Case) -> Any:
    """Counts steps in which the last layer's gradient is reduced before the first one's is there."""
    training = Training(SLOW_SECONDS)
    found: list[bool] = []

    def step(inputs: Any, labels: Any) -> None:
        before = Sleep.ended
        training.backward(inputs, labels)
        training.trainer.allreduce_grads()
        training.net.second.weight.grad().wait_to_read()
        found.append(Sleep.ended == before)
        training.trainer.update(BATCH)
        mx.nd.waitall()

    training.run(case.loader(), step=step)
    silent = found.copy()
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        training.run(log.watch(case.loader()), step=step)
    recorded = found[len(silent) :]
    return {**training.seen(), "silent": sum(silent), "recorded": sum(recorded)}


@alone
def slow_input(case: Case) -> Any:
    class Slow:
        def __iter__(self) -> Any:
            for batch in case.loader(20):
                time.sleep(SLOW_SECONDS)
                yield batch

    return recorded(case, Training(), Slow())


@ranked
@alone
def accumulation(case: Case) -> Any:
    training = Training(grad_req="add")
    turns: list[int] = []

    def step(inputs: Any, labels: Any) -> None:
        training.backward(inputs, labels)
        turns.append(1)
        if len(turns) % 3 == 0:
            training.trainer.step(3 * BATCH)
            training.net.collect_params().zero_grad()

    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        training.run(log.watch(case.loader()), step=step)
    return training.seen()


@alone
def validation_and_checkpoint(case: Case) -> Any:
    training = Training()
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        for _ in range(2):
            training.run(log.watch(case.loader()), epochs=1)
            with log.validation():
                # A validation that takes time, to be found in the log.
                time.sleep(0.001)
            with log.checkpoint():
                training.net.save_parameters(str(case.folder / "saved"))
    return training.seen()


@alone
def without_stages(case: Case) -> Any:
    return recorded(case, Training(), case.loader(), stages=False)


class Overstated(gluon.data.Sampler):  # type: ignore[misc]  # MXNet ships no types
    """A sampler that says that it has more than it gives."""

    def __iter__(self) -> Any:
        return iter(range(20))

    def __len__(self) -> int:
        return 40


def twice(samples: list[Any]) -> Any:
    return gluon.data.dataloader.default_batchify_fn([*samples, *samples])


@alone
def batches_of_every_size(case: Case) -> Any:
    """Loaders whose last batch, or every one, has a size of its own; the result is what the loop saw."""
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
    found = []
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        for loader in loaders:
            for inputs, labels in log.watch(loader):
                found.append(len(inputs))
                training.step(inputs, labels)
    return {**training.seen(), "samples": found}


@alone
def wrong_trainer(case: Case) -> Any:
    training, other = Training(), Training()
    with StepLogger(case.folder / "logs", trainer=other.trainer) as log:
        training.run(log.watch(case.loader()))
    return training.seen()


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
        return {**recorded(case, Training(), case.loader()), "silent": silent}
    finally:
        gradient_probe.GradientProbe.ask_ready = original  # type: ignore[method-assign]


@alone
def reduction_fails(case: Case) -> Any:
    """One reduction raises, and the training goes on with the next batch."""
    training = Training()
    reduce, turns = training.trainer._allreduce_grads, []

    def fails_once() -> None:
        turns.append(1)
        if len(turns) == 3:
            raise ConnectionError("a peer is gone")
        reduce()

    def step(inputs: Any, labels: Any) -> None:
        with contextlib.suppress(ConnectionError):
            training.step(inputs, labels)

    training.trainer._allreduce_grads = fails_once
    with StepLogger(case.folder / "logs", trainer=training.trainer) as log:
        training.run(log.watch(case.loader()), epochs=1, step=step)
    # The user's own is there again.
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
    """A C library whose streams read in a way of their own."""
    from stallscope.collector.recorder.mxnet import engine

    class OtherSystem:
        def __getattr__(self, name: str) -> Any:
            return getattr(system, "getpid" if name == "getc" else name)

    # Any object with a C library's functions will do.
    system, engine._system = engine._system, OtherSystem()  # type: ignore[assignment]
    try:
        return recorded(case, Training(), case.loader())
    finally:
        engine._system = system


@alone
def operator_fails(case: Case) -> Any:
    """What an operator raises in the engine, MXNet tells whoever waits for its result."""
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
    out = Path(sys.argv[1])
    cases = RANKS if RANKED else ALONE
    if RANKED:
        hvd.init()
    messages = Messages.of_the_recorder()
    for name in sys.argv[2:] or cases:
        case = Case(out, name)
        run_case(cases[name], case, case.folder, case.rank, messages)


if __name__ == "__main__":
    main()
