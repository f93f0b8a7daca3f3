"""Trains many small PyTorch models, one per case, each with a log folder of its own.

    horovodrun -np 2 python torch_cases.py OUT [CASE …]    cases of two ranks, with Horovod
    python two_ranks.py torch_cases.py OUT [CASE …]        the same with DistributedDataParallel
    python torch_cases.py OUT [CASE …]                     cases of one process

``OUT/CASE/logs`` holds the logs, ``OUT/CASE/result-RANK.json`` what the training itself saw,
``OUT/CASE/error-RANK.txt`` what a case raised.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import os
import pickle
import sys
import time
import warnings
from collections import UserDict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import torch
from asleep import polling, wait_asleep
from case_runner import Cases, Messages, full_disk, run_case, waiting_seconds
from pretended_cuda import PretendedCuda
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
)

from stallscope.collector.recorder.pytorch import recording
from stallscope.collector.recorder.pytorch.cuda import CudaClock
from stallscope.collector.recorder.pytorch.facts import cuda_device, why_no_timestamps
from stallscope.collector.recorder.pytorch.reductions import Reductions
from stallscope.torch import StepLogger, gather_logs, synthetic_like

HOROVOD = "HOROVOD_RANK" in os.environ
DDP = "TORCHELASTIC_RUN_ID" in os.environ
RANKED = HOROVOD or DDP
if HOROVOD:
    import horovod.torch as hvd

BATCH = 16
STEPS = 12
#: Enough for a verdict.
MANY_STEPS = 50
INPUTS = 8
HIDDEN = 64
CLASSES = 4
#: What a stage takes that is to be found in the log.
SLOW_SECONDS = 0.01
#: What is slow on one rank is slower than whatever else a busy machine does.
FAULT_SECONDS = 0.04
#: By how much a pretended device is behind the host.
LAG_NS = 50_000_000
#: Bytes of a log after which the disk of rank 1 is full.
FULL_BYTES = 4000

RANKS, ALONE = Cases(), Cases()
ranked, alone = RANKS.add, ALONE.add


class Case:
    """Where a case writes, and what it builds its training from."""

    def __init__(self, out: Path, name: str) -> None:
        self.rank = rank()
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)

    def logs(self, name: str = "logs") -> str:
        return str(self.folder / name)

    def loader(self, steps: int = STEPS, **options: Any) -> DataLoader:
        """Batches of this rank, the same ones for every loader."""
        return DataLoader(self.data(steps * BATCH), batch_size=BATCH, **options)

    def data(self, samples: int) -> TensorDataset:
        random = torch.Generator().manual_seed(7 + self.rank)
        inputs = torch.rand(samples, INPUTS, generator=random)
        return TensorDataset(inputs, torch.randint(CLASSES, (samples,), generator=random))


class Net(nn.Module):
    """Two layers, with room for what a case wants between them."""

    def __init__(self, between: Callable[[Any], Any] | None = None, unused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.second = nn.Linear(HIDDEN, CLASSES)
        self.between = between or torch.relu
        if unused:
            self.unused = nn.Linear(3, 3)

    def forward(self, inputs: Any) -> Any:
        return self.second(self.between(self.first(inputs)))


class Training:
    """A model and its optimizer, distributed as this launch does it."""

    def __init__(
        self, net: Any = None, passes: int = 1, base: Any = None, **ddp_options: Any
    ) -> None:
        self.net = net or Net()
        base = (base or (lambda parameters: torch.optim.SGD(parameters, 0.1)))(
            self.net.parameters()
        )
        self.model, self.optimizer = self.net, base
        if HOROVOD:
            named = self.net.named_parameters()
            self.optimizer = hvd.DistributedOptimizer(
                base, named_parameters=named, backward_passes_per_step=passes
            )
            hvd.broadcast_parameters(self.net.state_dict(), root_rank=0)
        elif DDP:
            self.model = DistributedDataParallel(self.net, **ddp_options)

    def logger(self, case: Case, name: str = "logs", **options: Any) -> StepLogger:
        model = self.model if DDP else None
        return StepLogger(case.logs(name), optimizer=self.optimizer, model=model, **options)

    def backward(self, batch: Any) -> Any:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        return loss

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()

    def recorded(self, case: Case, step: Any = None, steps: int = STEPS, **options: Any) -> Any:
        """Two epochs, recorded; the result says what is left of them."""
        with self.logger(case, **options) as log:
            for _ in range(2):
                for batch in log.watch(case.loader(steps)):
                    (step or self.step)(batch)
        return self.seen()

    def silent(self, case: Case, step: Any = None) -> str:
        """The same without the recorder: the weights that come out."""
        for _ in range(2):
            for batch in case.loader():
                (step or self.step)(batch)
        return self.weights()

    def seen(self, **more: Any) -> dict[str, Any]:
        return {"weights": self.weights(), "ours": self.ours(), **more}

    def weights(self) -> str:
        digest = hashlib.sha256()
        for parameter in self.net.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        return digest.hexdigest()

    def ours(self) -> list[str]:
        """What the recorder has left behind in model and optimizer."""
        left = [
            f"hook of {name}"
            for name, parameter in self.net.named_parameters()
            if getattr(parameter, "_post_accumulate_grad_hooks", None)
            or getattr(parameter, "_backward_hooks", None)
        ]
        left += ["synchronize"] * ("synchronize" in vars(self.optimizer))
        left += ["forward hook"] * bool(self.model._forward_pre_hooks)
        left += ["module's forward hook"] * bool(self.net._forward_pre_hooks)
        left += ["update hook"] * bool(self.optimizer._optimizer_step_post_hooks)
        return left


class _Sleeps(torch.autograd.Function):
    """Passes its input on, and takes its time in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Any, seconds: float) -> Any:
        ctx.seconds = seconds
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        time.sleep(ctx.seconds)
        return gradient, None


# -- both kinds of ranks -------------------------------------------------------------------------


@ranked
def plain(case: Case) -> Any:
    training = Training()
    with training.logger(case, run_name="plain run") as log:
        for epoch in range(2):
            for batch in log.watch(case.loader()):
                training.step(batch)
            with log.validation():
                training.model.eval()
                with torch.no_grad():
                    for inputs, _ in case.loader(3):
                        training.model(inputs)
                training.model.train()
            with log.checkpoint():
                torch.save(training.net.state_dict(), case.folder / f"{rank()}-{epoch}.pt")
    return training.seen(silent=Training().silent(case))


@ranked
def gathered(case: Case) -> Any:
    """Ranks that share no folder bring their logs to rank 0's, twice."""
    training, name = Training(), f"logs-{case.rank}"
    with training.logger(case, name) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen(files=[len(gather_logs(case.logs(name))) for _ in range(2)])


@ranked
def sampled(case: Case) -> Any:
    """Hardly any step in full, in files that are full at once."""
    options = {"sample_after": 64, "sample_one_in": 4, "max_file_mb": 0.003, "flush_seconds": 0.02}
    return Training().recorded(case, steps=160, **options)


@ranked
def waits_for_a_rank(case: Case) -> Any:
    """Rank 0 waits for rank 1 in a reduction."""
    ones = torch.ones(1000)

    def reduce() -> None:
        hvd.allreduce(ones, name="waits") if HOROVOD else torch.distributed.all_reduce(ones)

    with polling() if HOROVOD else contextlib.nullcontext():
        return waiting_seconds(reduce, case.rank)


@ranked
def slow_compute(case: Case) -> Any:
    """Rank 1 computes longer, in the middle of its backward pass."""
    seconds = FAULT_SECONDS * case.rank
    return Training(Net(lambda inputs: _Sleeps.apply(inputs, seconds))).recorded(
        case, steps=MANY_STEPS
    )


@contextlib.contextmanager
def pretended_device() -> Iterator[PretendedCuda]:
    """Parameters of the CPU are taken for those of a device that does everything a while later."""
    cuda, clock_of = PretendedCuda(lag_ns=LAG_NS), recording._clock_of
    recording._clock_of = lambda _: CudaClock(cuda, 0)
    try:
        yield cuda
    finally:
        recording._clock_of = clock_of


@ranked
def behind_the_host(case: Case) -> Any:
    """Rank 1 computes longer; all timestamps are a device's."""
    training = Training(Net(lambda inputs: _Sleeps.apply(inputs, FAULT_SECONDS * case.rank)))
    with pretended_device() as cuda:
        return {**training.recorded(case, steps=STEPS), "events": cuda.events}


@ranked
def accumulation_behind_the_host(case: Case) -> Any:
    training = Training(passes=3)
    with pretended_device():
        return training.recorded(case, accumulating(training, 3))


class SlowData(Dataset):
    def __init__(self, data: Dataset, seconds: float) -> None:
        self.data = data
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        if index % BATCH == 0:
            time.sleep(self.seconds)
        return self.data[index]


@ranked
def slow_input(case: Case) -> Any:
    training = Training()
    data = SlowData(case.data(MANY_STEPS * BATCH), FAULT_SECONDS * case.rank)
    with training.logger(case) as log:
        for _ in range(2):
            for batch in log.watch(DataLoader(data, BATCH)):
                training.step(batch)
    return training.seen()


@ranked
def slow_before_a_broadcast(case: Case) -> Any:
    """Rank 0's input is slow, and DDP broadcasts rank 0's means before every forward pass."""
    training = Training(Net(nn.BatchNorm1d(HIDDEN)))
    data = SlowData(case.data(STEPS * BATCH), FAULT_SECONDS * (1 - case.rank))
    with training.logger(case) as log:
        for batch in log.watch(DataLoader(data, BATCH)):
            training.step(batch)
    return training.seen()


def accumulating(training: Training, passes: int) -> Callable[[Any], None]:
    """A step that updates the model only every so many turns, as users write it."""
    turns = iter(range(1_000_000))

    def step(batch: Any) -> None:
        last = next(turns) % passes == passes - 1
        with contextlib.nullcontext() if last or not DDP else training.model.no_sync():
            training.backward(batch)
        if last:
            training.optimizer.step()
            training.optimizer.zero_grad()

    return step


@ranked
def accumulation(case: Case) -> Any:
    training, silent = Training(passes=3), Training(passes=3)
    result = training.recorded(case, accumulating(training, 3))
    return {**result, "silent": silent.silent(case, accumulating(silent, 3))}


@ranked
def accumulation_left_over(case: Case) -> Any:
    """An epoch of 12 turns, 5 of which make a step: two are left over for the next epoch."""
    training = Training(passes=5)
    return training.recorded(case, accumulating(training, 5))


@ranked
def clipping(case: Case) -> Any:
    """What is done to gradients after the reduction is no communication."""

    def step(batch: Any) -> None:
        training.optimizer.zero_grad()
        training.backward(batch)
        if HOROVOD:
            training.optimizer.synchronize()
        nn.utils.clip_grad_norm_(training.net.parameters(), 0.1)
        time.sleep(SLOW_SECONDS)
        with training.optimizer.skip_synchronize() if HOROVOD else contextlib.nullcontext():
            training.optimizer.step()

    training = Training()
    return training.recorded(case, step)


@ranked
def scaler(case: Case) -> Any:
    """Mixed precision: losses are scaled, gradients unscaled after the reduction."""
    scaling = torch.amp.GradScaler("cpu")

    def step(batch: Any) -> None:
        inputs, labels = batch
        training.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(training.model(inputs), labels)
        scaling.scale(loss).backward()
        if HOROVOD:
            training.optimizer.synchronize()
        scaling.unscale_(training.optimizer)
        nn.utils.clip_grad_norm_(training.net.parameters(), 0.1)
        with training.optimizer.skip_synchronize() if HOROVOD else contextlib.nullcontext():
            scaling.step(training.optimizer)
        scaling.update()

    training = Training()
    return training.recorded(case, step)


@ranked
def unused_parameters(case: Case) -> Any:
    return Training(Net(unused=True), find_unused_parameters=True).recorded(case)


@ranked
def static_graph(case: Case) -> Any:
    return Training(Net(unused=True), static_graph=True).recorded(case)


@ranked
def reentrant_checkpoint(case: Case) -> Any:
    """A part of the backward pass is a backward pass of its own, here the one before the last."""
    inner = nn.Linear(HIDDEN, HIDDEN)
    net = Net(lambda inputs: checkpoint(inner, torch.relu(inputs), use_reentrant=True))
    net.inner = inner
    return Training(net).recorded(case)


@ranked
def all_in_a_reentrant_checkpoint(case: Case) -> Any:
    """No gradient comes outside of the inner backward pass."""

    class Checkpointed(Net):
        def forward(self, inputs: Any) -> Any:
            return checkpoint(super().forward, inputs.requires_grad_(), use_reentrant=True)

    return Training(Checkpointed()).recorded(case)


@ranked
def several_backward_passes_in_a_turn(case: Case) -> Any:
    """A batch is cut in two, whose gradients are summed."""

    def step(batch: Any) -> None:
        inputs, labels = batch
        training.optimizer.zero_grad()
        with training.model.no_sync() if DDP else contextlib.nullcontext():
            training.backward((inputs[: BATCH // 2], labels[: BATCH // 2]))
        training.backward((inputs[BATCH // 2 :], labels[BATCH // 2 :]))
        training.optimizer.step()

    training = Training(passes=2)
    return training.recorded(case, step)


@ranked
def several_reductions_in_a_turn(case: Case) -> Any:
    """Every batch is learned twice."""

    def step(batch: Any) -> None:
        training.step(batch)
        training.step(batch)

    training = Training()
    return training.recorded(case, step)


@ranked
def synchronized_twice(case: Case) -> Any:
    """The user synchronizes, and forgets to tell the step: Horovod reduces again, and warns."""

    def step(batch: Any) -> None:
        training.optimizer.zero_grad()
        training.backward(batch)
        if HOROVOD:
            training.optimizer.synchronize()
        training.optimizer.step()

    training = Training()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return training.recorded(case, step)


@ranked
def left_early(case: Case) -> Any:
    """Loops that the user leaves: before a batch is used, after it was, and by an exception."""
    training = Training()
    with training.logger(case) as log:
        for turn, batch in enumerate(log.watch(case.loader())):
            if turn == 5:
                break
            training.step(batch)
        for turn, batch in enumerate(log.watch(case.loader())):
            training.step(batch)
            if turn == 4:
                break
        with contextlib.suppress(KeyError):
            for turn, batch in enumerate(log.watch(case.loader())):
                training.step(batch)
                if turn == 4:
                    raise KeyError("on purpose")
        for batch in log.watch(case.loader(5)):
            training.step(batch)
    return training.seen()


@ranked
def validation_in_a_turn(case: Case) -> Any:
    """In the middle of an epoch, after the update, the model is tried out and saved."""
    training = Training()
    turns = iter(range(STEPS))
    with training.logger(case) as log, log.epoch(7):
        for batch in log.watch(case.loader()):
            training.step(batch)
            if next(turns) == 5:
                with log.validation():
                    time.sleep(SLOW_SECONDS)
                with log.checkpoint():
                    time.sleep(SLOW_SECONDS)
    return training.seen()


@ranked
def two_sessions(case: Case) -> Any:
    """The same optimizer goes on in a second session; Adam counts its steps."""
    training = Training(base=lambda parameters: torch.optim.Adam(parameters, 0.002))
    training.recorded(case)
    return training.recorded(case)


@ranked
def two_loggers(case: Case) -> Any:
    training = Training()
    first, second = training.logger(case, "first"), training.logger(case)
    with first:
        for batch in first.watch(case.loader()):
            training.step(batch)
        with second:
            for batch in second.watch(case.loader()):
                training.step(batch)
        for batch in first.watch(case.loader()):
            training.step(batch)
    return training.seen()


@ranked
def without_stages(case: Case) -> Any:
    training = Training(passes=2)
    return training.recorded(case, accumulating(training, 2), stages=False)


@ranked
def optimizer_alone(case: Case) -> Any:
    """Nothing is said about who reduces: Horovod by hand, or a wrapped model that nobody showed."""

    def step(batch: Any) -> None:
        training.optimizer.zero_grad()
        training.backward(batch)
        if HOROVOD:
            for parameter in training.net.parameters():
                hvd.allreduce_(parameter.grad)
        training.optimizer.step()

    training = Training()
    if HOROVOD:
        training = by_hand()
    with StepLogger(case.logs(), optimizer=training.optimizer) as log:
        for batch in log.watch(case.loader()):
            step(batch)
    return training.seen()


def by_hand() -> Training:
    training = Training()
    training.net = training.model = Net()
    training.optimizer = torch.optim.SGD(training.net.parameters(), 0.1)
    return training


@ranked
def wrong_object(case: Case) -> Any:
    """The logger got another optimizer or model than the one that trains."""
    training, other = Training(), Training()
    with other.logger(case) as log:
        for _ in range(2):
            for batch in log.watch(case.loader()):
                training.step(batch)
    return training.seen()


@ranked
def copies(case: Case) -> Any:
    """Models are copied, saved and sent while they are recorded; the copies train by themselves."""
    training = Training()
    with training.logger(case) as log:
        for turn, batch in enumerate(log.watch(case.loader())):
            training.step(batch)
            if turn == 3:
                clone = copy.deepcopy(training.net)
                loaded = pickle.loads(pickle.dumps(training.net))
                hooks = pickle.loads(pickle.dumps(training.model._forward_pre_hooks))
                torch.save(training.net, case.folder / f"model-{case.rank}.pt")
                copy.deepcopy(training.optimizer.state_dict())
                for model in (clone, loaded):
                    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
                for hook in hooks.values():
                    hook(clone, batch)
    return training.seen()


@ranked
def compiled(case: Case) -> Any:
    training = Training()
    training.model = torch.compile(training.model, backend="eager")
    with training.logger(case) as log:
        for _ in range(2):
            for batch in log.watch(case.loader()):
                training.step(batch)
    training.model = training.model._orig_mod
    return training.seen()


@ranked
def compiled_and_slow(case: Case) -> Any:
    """Forward and backward pass are compiled, before recording begins; rank 1 computes longer."""

    @torch.compiler.disable
    def slow(inputs: Any) -> Any:
        time.sleep(FAULT_SECONDS * case.rank)
        return torch.relu(inputs)

    training = Training(Net(slow))
    model, training.model = training.model, torch.compile(training.model, backend="aot_eager")
    training.step(next(iter(case.loader())))
    with training.logger(case) as log:
        for batch in log.watch(case.loader(2 * MANY_STEPS)):
            training.step(batch)
    training.model = model
    return training.seen()


@ranked
def unfrozen(case: Case) -> Any:
    """A layer begins to train in the second epoch: Horovod and DDP want a new wrapper, and get one."""
    net = Net()
    net.first.requires_grad_(False)
    training = Training(net)
    training.recorded(case)
    net.first.requires_grad_(True)
    if HOROVOD:
        # Horovod's hooks stay on parameters for ever.
        net = Net()
    return Training(net).recorded(case)


@ranked
def no_folder(case: Case) -> Any:
    training = Training()
    (case.folder / "a file").write_text("no folder can be made below this\n")
    name = "a file/logs" if case.rank == 1 else "logs"
    with training.logger(case, name) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen()


@ranked
def disk_gets_full(case: Case) -> Any:
    training = Training()
    with full_disk(FULL_BYTES) if case.rank == 1 else contextlib.nullcontext():
        return training.recorded(case, steps=MANY_STEPS, flush_seconds=0.02)


class TwoOrders(nn.Module):
    """Two layers that change places: the gradient of the front one comes last, and late."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.layers = nn.ModuleList([nn.Linear(INPUTS, INPUTS) for _ in range(2)])
        self.head = nn.Linear(INPUTS, CLASSES)
        self.swapped = False

    def forward(self, inputs: Any) -> Any:
        front, back = reversed(self.layers) if self.swapped else self.layers
        return self.head(back(_Sleeps.apply(front(inputs), SLOW_SECONDS)))


class Witness:
    """Hooks of our own on all gradients, put there first: when the last one of every step was there."""

    def __init__(self, net: Any) -> None:
        self.last: list[int] = []
        self._net = net
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._seen)
            for parameter in net.parameters()
        ]

    def _seen(self, _: Any) -> None:
        self.last[-1] = time.monotonic_ns()

    def others(self) -> int:
        """How many gradients somebody else has a hook on."""
        return sum(len(one._post_accumulate_grad_hooks) - 1 for one in self._net.parameters())

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


@ranked
def another_gradient_comes_last(case: Case) -> Any:
    """Twice in an epoch the layers change places, and watched gradients are few in between."""
    training = Training(TwoOrders())
    witness, hooks = Witness(training.net), []
    with training.logger(case) as log:
        for number, batch in enumerate(log.watch(case.loader(60))):
            training.net.swapped = 20 <= number < 40
            witness.last.append(0)
            training.step(batch)
            hooks.append(witness.others())
    witness.remove()
    return training.seen(last=witness.last, hooks=hooks)


@alone
def other_parts_train(case: Case) -> Any:
    """From one step on, none of the parameters trains that did before."""
    training = Training(TwoOrders())
    hooks = []
    with training.logger(case) as log:
        for number, (inputs, _) in enumerate(log.watch(case.loader(24))):
            training.optimizer.zero_grad()
            training.net.layers[number // 12](inputs).sum().backward()
            training.optimizer.step()
            hooks.append(len(training.ours()))
    return training.seen(hooks=hooks)


@alone
def the_end_comes_late(case: Case) -> Any:
    """Between the last gradient and the end of the pass there is room for another one to come unseen."""
    training = Training(TwoOrders())
    hooks = []
    with training.logger(case) as log:
        for number, batch in enumerate(log.watch(case.loader(20))):
            if number == 0:
                # A hook of the user's that takes time after the gradient is there.
                for parameter in training.net.layers[0].parameters():
                    parameter.register_post_accumulate_grad_hook(lambda _: time.sleep(0.001))
            training.step(batch)
            hooks.append(len(training.ours()))
    return training.seen(hooks=hooks)


@alone
def layers_get_frozen(case: Case) -> Any:
    """The layer whose gradient came last trains no more, from the last step of an epoch on."""
    training = Training(TwoOrders())
    front = training.net.layers[0]
    with training.logger(case) as log:
        for epoch in range(3):
            for number, batch in enumerate(log.watch(case.loader())):
                front.requires_grad_(epoch == 0 and number < STEPS - 1)
                training.step(batch)
    return training.seen()


@ranked
def recorder_breaks(case: Case) -> Any:
    """Something inside the recorder raises in the fifth turn, when the first ones are on disk."""
    from stallscope.collector.recorder import loop_steps

    return breaking(case, loop_steps.Iteration, "reduced", pause=0.5)


@ranked
def recorder_breaks_in_its_own_thread(case: Case) -> Any:
    """The same of what is not done between the user's lines."""
    from stallscope.collector.recorder import loop_steps

    return breaking(case, loop_steps.StepAssembler, "rows", pause=0.0)


def breaking(case: Case, owner: Any, name: str, pause: float) -> Any:
    """A training in which the fifth call of the recorder's own method raises, after a pause."""
    original, calls = getattr(owner, name), []

    def broken(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            time.sleep(pause)
            raise ZeroDivisionError("broken on purpose")
        return original(self, *args)

    setattr(owner, name, broken)
    training = Training()
    try:
        result = training.recorded(case, flush_seconds=0.05)
    finally:
        setattr(owner, name, original)
    return {**result, "silent": Training().silent(case)}


@ranked
def recorder_cannot_start(case: Case) -> Any:
    """Something inside the recorder raises after the hooks: they are taken out at once."""
    from stallscope.collector.recorder.pytorch import recording

    original = recording.reductions_of

    def broken(*args: Any) -> Any:
        reductions = original(*args)
        install = reductions.install

        def install_and_raise(*args: Any) -> None:
            install(*args)
            raise ZeroDivisionError("broken on purpose")

        reductions.install = install_and_raise
        return reductions

    recording.reductions_of = broken
    training = Training()
    in_training: list[str] = []

    def step(batch: Any) -> None:
        in_training.extend(training.ours())
        training.step(batch)

    try:
        result = training.recorded(case, step)
    finally:
        recording.reductions_of = original
    return {**result, "in_training": in_training}


# -- one process ---------------------------------------------------------------------------------


@alone
def one_process(case: Case) -> Any:
    training = Training()
    result = training.recorded(case)
    return {**result, "silent": Training().silent(case), "horovod": "horovod" in sys.modules}


@alone
def petastorm(case: Case) -> Any:
    """Its loader, whose worker is slower than training."""
    from petastorm.pytorch import DataLoader as PetastormLoader
    from row_groups import LABEL, reader, written

    inputs, labels = case.data(STEPS * BATCH).tensors
    url = written(case.folder / "rows", inputs.numpy(), labels.numpy(), rows=BATCH)
    training = Training()
    log = training.logger(case, flush_seconds=0.1)
    with log, reader(url, pause=0.05, num_epochs=1) as rows:
        for batch in log.watch(PetastormLoader(rows, batch_size=BATCH)):
            columns = [batch[f"x{at}"] for at in range(INPUTS)]
            training.step((torch.stack(columns, 1), batch[LABEL]))
    return training.seen()


@alone
def one_process_accumulates(case: Case) -> Any:
    training = Training()
    return training.recorded(case, accumulating(training, 3))


@alone
def one_process_with_horovod(case: Case) -> Any:
    import horovod.torch

    horovod.torch.init()
    training = Training()
    named = training.net.named_parameters()
    training.optimizer = horovod.torch.DistributedOptimizer(training.optimizer, named)
    result = training.recorded(case)
    horovod.torch.shutdown()
    return result


@alone
def model_without_optimizer(case: Case) -> Any:
    training = Training()
    with StepLogger(case.logs(), model=training.model) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen()


@alone
def nothing_given(case: Case) -> Any:
    training = Training()
    with StepLogger(case.logs(), batch_size=99) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen()


@alone
def closed_and_entered(case: Case) -> Any:
    """Without ``with``, then closed, and then with it."""
    training = Training()
    log = training.logger(case)
    for batch in log.watch(case.loader()):
        training.step(batch)
    log.close()
    for batch in log.watch(case.loader()):
        training.step(batch)
    length = len(log.watch(case.loader()))
    with log:
        for batch in log.watch(list(case.loader())):
            training.step(batch)
    return training.seen(length=length)


@alone
def another_optimizer_updates(case: Case) -> Any:
    training, other = Training(), Training()
    return {**training.recorded(case, other.step), "weights": other.weights()}


@alone
def old_torch(case: Case) -> Any:
    """Before 2.0 and 2.1 torch had fewer kinds of hooks."""
    tensor_hook = torch.Tensor.register_post_accumulate_grad_hook
    step_hook = torch.optim.Optimizer.register_step_post_hook
    del torch.Tensor.register_post_accumulate_grad_hook
    del torch.optim.Optimizer.register_step_post_hook
    try:
        return Training().recorded(case)
    finally:
        torch.Tensor.register_post_accumulate_grad_hook = tensor_hook
        torch.optim.Optimizer.register_step_post_hook = step_hook


class Streamed(IterableDataset):
    """Samples whose number it is not known beforehand."""

    def __init__(self, data: TensorDataset) -> None:
        self._data = data

    def __iter__(self) -> Any:
        return iter(self._data)


class Unmeasured:
    """A sampler that does not know its length."""

    def __iter__(self) -> Any:
        return iter(range(20))


class Overstated(Unmeasured):
    """A sampler that says that it has more than it gives."""

    def __len__(self) -> int:
        return 40


def twice(samples: list[Any]) -> Any:
    return default_collate([*samples, *samples])


@alone
def batches_of_every_size(case: Case) -> Any:
    """Loaders whose last batch, or every one, has a size of its own; the result is what the loop saw."""
    training, data = Training(), case.data(2 * BATCH + 8)
    loaders: list[Any] = [
        DataLoader(data, BATCH),
        DataLoader(data, BATCH, shuffle=True),
        DataLoader(data, BATCH, drop_last=True),
        DataLoader(data, BATCH, collate_fn=twice),
        DataLoader(data, batch_sampler=[[0, 1, 2], list(range(30)), [7]]),
        DataLoader(data, BATCH, sampler=Unmeasured()),
        DataLoader(data, BATCH, sampler=Overstated()),
        DataLoader(Streamed(data), BATCH),
        [data[:5], data[5:12]],
    ]
    found = []
    with training.logger(case) as log:
        for loader in loaders:
            for batch in log.watch(loader):
                found.append(len(batch[0]))
                training.step(batch)
    return training.seen(samples=found)


@alone
def one_process_behind_the_host(case: Case) -> Any:
    with pretended_device():
        return Training().recorded(case)


@alone
def few_hooks_behind_the_host(case: Case) -> Any:
    training, hooks = Training(), []
    with pretended_device(), training.logger(case) as log:
        for batch in log.watch(case.loader(20)):
            training.step(batch)
            hooks.append(len(training.ours()))
    return training.seen(hooks=hooks)


@alone
def fewer_gradients_behind_the_host(case: Case) -> Any:
    """Every other turn has gradients that the next one has not."""
    training = Training(Net(unused=True))
    turns = itertools.count()

    def step(batch: Any) -> None:
        inputs, labels = batch
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(training.model(inputs), labels)
        if next(turns) % 2:
            loss = loss + training.net.unused(torch.ones(3)).sum()
        loss.backward()
        training.optimizer.step()

    with pretended_device():
        return training.recorded(case, step)


@alone
def devices_of_parameters(case: Case) -> Any:
    """What is done where the model is, without there being such devices."""
    places = {
        "one": ["cuda:1", "cuda:1"],
        "two": ["cuda:0", "cuda:1"],
        "mixed": ["cpu", "cuda:0"],
        "none": ["cpu", "cpu"],
    }
    found = {}
    for name, devices in places.items():
        parameters = [SimpleNamespace(device=torch.device(device)) for device in devices]
        found[name] = [cuda_device(parameters), why_no_timestamps(Reductions(), parameters, True)]
    return {"weights": "", "ours": [], "found": found}


@alone
def other_device(case: Case) -> Any:
    """A device whose work the host does not see end; this one has no numbers at all."""
    net = Net().to("meta")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with StepLogger(case.logs(), optimizer=optimizer) as log:
        for turn, (inputs, _) in enumerate(log.watch(case.loader())):
            net(inputs.to("meta")).sum().backward()
            if turn % 2:
                optimizer.step()
                optimizer.zero_grad()
    return {"weights": "", "ours": []}


Pair = namedtuple("Pair", ["inputs", "labels"])


class Tokens(UserDict):
    """What tokenizers give: a mapping that is no dict."""


@alone
def kinds_of_batches(case: Case) -> Any:
    """The samples of every kind, and the like of it."""
    ragged = nn.utils.rnn.pack_sequence([torch.rand(3, 2), torch.rand(1, 2)])
    batches = {
        "pair": (torch.rand(5, 3), torch.tensor([3, 4, 5, 3, 5])),
        "named": Pair(torch.rand(5, 3).double(), torch.randint(4, (5,), dtype=torch.uint8)),
        "dict": {"names": ["a", "b"], "inputs": torch.rand(7, 2).half()},
        "tokens": Tokens(ids=torch.randint(100, (6, 9)), mask=torch.rand(6, 9) > 0.5),
        "nested": [[torch.rand(4, 2), torch.rand(4, 1)], torch.tensor(3.0)],
        "packed": ragged,
        "empty": torch.rand(0, 3),
        "text": ["a", "b"],
        "infinite": torch.tensor([[1.0, float("inf")], [2.0, float("nan")]]),
        "sparse": torch.eye(3).to_sparse(),
    }
    from stallscope.collector.recorder.pytorch.batches import samples_in

    seen = {}
    for name, batch in batches.items():
        state = torch.get_rng_state()
        like = next(iter(synthetic_like([batch])))
        assert torch.equal(torch.get_rng_state(), state)
        seen[name] = {
            "samples": samples_in(batch),
            "shape": described(batch),
            "like": described(like),
            "same": same(batch, like),
        }
    tokens = synthetic_like([batches["pair"]])
    labels = next(iter(tokens))[1]
    return {
        "weights": "",
        "ours": [],
        "kinds": seen,
        "labels": sorted(set(labels.tolist())),
        "length": len(tokens),
        "batches": len(list(tokens)),
    }


def described(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return [str(batch.dtype), str(batch.layout), list(batch.shape)]
    if isinstance(batch, (dict, UserDict)):
        return [type(batch).__name__, {key: described(value) for key, value in batch.items()}]
    if isinstance(batch, (list, tuple)):
        return [type(batch).__name__, [described(value) for value in batch]]
    return batch


def same(batch: Any, like: Any) -> bool:
    """Whether the first tensor of both holds the same numbers."""
    if isinstance(batch, torch.Tensor):
        return torch.equal(batch.to_dense(), like.to_dense())
    if isinstance(batch, (dict, UserDict)):
        batch, like = list(batch.values())[-1:], list(like.values())[-1:]
    return same(batch[0], like[0]) if isinstance(batch, (list, tuple)) else batch == like


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.rand(INPUTS), torch.randint(CLASSES, ()).item()


@alone
def synthetic_run(case: Case) -> Any:
    """A baseline: as long as the real loader, or endless where that has no length."""
    training = Training()
    real = case.loader(num_workers=1, shuffle=True)
    endless = synthetic_like(DataLoader(Endless(), BATCH))
    with training.logger(case, synthetic=True) as log:
        for batch in log.watch(synthetic_like(real)):
            training.step(batch)
        for turn, batch in enumerate(log.watch(endless)):
            training.step(batch)
            if turn == STEPS - 1:
                break
    return training.seen(sampler=type(synthetic_like(real).sampler).__name__)


@alone
def bad_arguments(case: Case) -> Any:
    raised = []
    for arguments in (
        {"log_dir": 3},
        {"log_dir": "x", "optimizer": Net()},
        {"log_dir": "x", "model": "resnet50"},
        {"log_dir": "x", "batch_size": 0},
        {"log_dir": "x", "flush_seconds": 0},
    ):
        try:
            StepLogger(**arguments)
        except (TypeError, ValueError) as error:
            raised.append([type(error).__name__, str(error).split(",")[0]])
    try:
        synthetic_like([])
    except ValueError as error:
        raised.append([type(error).__name__, str(error)])
    return {"weights": "", "ours": [], "raised": raised}


# -- running them --------------------------------------------------------------------------------

messages = Messages.of_the_recorder()


def rank() -> int:
    if HOROVOD:
        return hvd.rank()
    return torch.distributed.get_rank() if DDP else 0


def run(out: Path, name: str, case_function: Callable[[Case], Any]) -> None:
    case = Case(out, name)
    if case.rank == 0:
        print(f"case {name}", flush=True)
    run_case(case_function, case, case.folder, case.rank, messages)


def main() -> None:
    out, *names = sys.argv[1:]
    if HOROVOD:
        hvd.init()
        wait_asleep()
    if DDP:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    cases = RANKS if RANKED else ALONE
    for name in names or cases:
        run(Path(out), name, cases[name])
    if DDP:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
