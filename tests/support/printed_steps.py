"""Jobs with programs that print step times: the true times, and the lines of each program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BATCH, SIZE = 64, 2
_BEGAN = datetime(2026, 11, 21, 2, 28, tzinfo=UTC)
# A validation.
_BETWEEN_EPOCHS_S = 7.5


def written_megatron(
    path: Path, ranks: int = 64, step_ms: float = 1600.0, layers: int | None = None
) -> Path:
    """Write a log of Megatron-LM: rank 0's lines about ten steps each, some with timers after them."""
    timers = {"forward-compute": 0.25, "backward-compute": 0.5, "backward-params-all-reduce": 0.06}
    stages = "".join(f" | {name}: {share * step_ms:.2f}" for name, share in timers.items())
    lines = [f"using world size: {ranks}, data-parallel-size: {ranks}"]
    if layers is not None:
        lines += [f"  num_layers ...................................... {layers}"]
    for n in range(1, 61):
        took = step_ms + n % 7
        lines.append(
            f" iteration {10 * n:8d}/ 600 | consumed samples: {n * 640:12d} | "
            f"elapsed time per iteration (ms): {took:.1f} | learning rate: 2.9E-04 | "
            "global batch size: 64 | lm loss: 8.9E+00 |"
        )
        lines += [f"time (ms){stages} | optimizer: {0.05 * step_ms:.2f} | batch-generator: 2.00"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


class Line(NamedTuple):
    """A line, and when it was printed."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Truth:
    """True times of steps and of their waits for data, in seconds: epochs × steps."""

    step_s: Floats
    data_s: Floats

    @classmethod
    def drawn(cls, seed: int = 1, epochs: int = 2, steps: int = 200) -> Truth:
        """Draw times of steps, a tenth of them with a slow batch."""
        random = np.random.default_rng(seed)
        data = random.gamma(2.0, 0.02, (epochs, steps))
        data += 0.5 * (random.random((epochs, steps)) < 0.1)
        return cls(0.25 + 0.05 * random.random((epochs, steps)) + data, data)

    @property
    def as_one_epoch(self) -> Truth:
        return Truth(self.step_s.reshape(1, -1), self.data_s.reshape(1, -1))

    def ended(self, epoch: int, steps: int) -> datetime:
        """Return the time after so many steps of an epoch."""
        seconds = self.step_s[:epoch].sum() + self.step_s[epoch, :steps].sum()
        return _BEGAN + timedelta(seconds=float(seconds) + epoch * _BETWEEN_EPOCHS_S)


@dataclass(frozen=True)
class Program:
    """A program, and the lines that it prints."""

    #: The name of the parser that reads it.
    parser: str
    #: The format of a line (for ``_values``).
    line: str
    #: It prints after ``first`` steps, and then after each ``every`` steps.
    every: int
    first: int = 0
    #: Lines before the first step.
    header: str = ""
    #: The line after an epoch.
    epoch_end: str = ""
    #: Steps at the start of each epoch that its lines do not time.
    untimed: int = 0
    #: Added to the number of completed steps, it is the program's number of a step.
    number: int = 0
    #: Whether it counts steps over the job.
    one_epoch: bool = False
    #: Whether its lines have waits for data.
    has_data: bool = True
    #: Whether its windows cover all steps, and are not samples of them.
    has_windows: bool = True

    def truth(self, seed: int = 1) -> Truth:
        drawn = Truth.drawn(seed)
        return drawn.as_one_epoch if self.one_epoch else drawn

    def lines(self, truth: Truth, rank: int = 0) -> list[Line]:
        """Return all lines of a rank."""
        printed = [Line(truth.ended(0, 0), text) for text in self._filled(self.header, rank=rank)]
        for epoch in range(len(truth.step_s)):
            for done in self.printed_at(truth):
                values = _values(self, truth, epoch, done)
                at = truth.ended(epoch, done)
                stamps = _stamps(at)
                text = self.line.format(**values, **stamps, rank=rank)
                printed.append(Line(at, text))
            at = truth.ended(epoch, truth.step_s.shape[1])
            cost = truth.step_s[epoch].sum()
            printed += [
                Line(at, text)
                for text in self._filled(
                    self.epoch_end, epoch=epoch, cost=cost, rank=rank, **_stamps(at)
                )
            ]
        return printed

    def printed_at(self, truth: Truth) -> Sequence[int]:
        """Return the numbers of steps in an epoch after which it prints."""
        return range(self.first or self.every, truth.step_s.shape[1] + 1, self.every)

    def timed(self, truth: Truth) -> tuple[Floats, Floats]:
        """Return the steps that its lines time, and their waits for data."""
        last = self.printed_at(truth)[-1]
        return truth.step_s[:, self.untimed : last], truth.data_s[:, self.untimed : last]

    def text(self, seed: int = 1, rank: int = 0) -> bytes:
        """Return the file of a rank's output."""
        lines = self.lines(self.truth(seed), rank)
        return "".join(line.text + "\n" for line in lines).encode()

    @staticmethod
    def _filled(form: str, **values: Any) -> list[str]:
        return form.format(**values, batch=BATCH, size=SIZE).splitlines()


def _stamps(at: datetime) -> dict[str, str]:
    return {
        "iso": f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}",
        "iso_t": f"{at:%Y-%m-%dT%H:%M:%S}",
        "seconds_only": f"{at:%Y-%m-%d %H:%M:%S}",
        "glog": f"I{at:%m%d %H:%M:%S.%f} 47580729335424",
        "day": f"{at:%m/%d %H:%M:%S}",
        "unix": repr(at.timestamp()),
    }


def _values(program: Program, truth: Truth, epoch: int, done: int) -> dict[str, Any]:
    """Return all values that a line may have after so many steps of an epoch."""
    steps, data = (times[epoch] for times in (truth.step_s, truth.data_s))
    timed = slice(min(program.untimed, done - 1), done)
    window = slice(max(done - program.every, 0), done)
    window_s = float(steps[window].mean())
    return {
        "epoch": epoch,
        "epoch_1": epoch + 1,
        "step": done + program.number,
        "before": done + program.number - program.every,
        "steps": len(steps),
        "last": steps[done - 1],
        "mean": steps[timed].mean(),
        "window": window_s,
        "median": np.median(steps[window]),
        "last_data": data[done - 1],
        # A program may count waits for data of steps that it does not time.
        "mean_data": data[timed].mean(),
        "window_data": data[window].mean(),
        "median_data": np.median(data[window]),
        "rate": BATCH / window_s,
        "whole_rate": SIZE * BATCH / window_s,
        "mean_rate": BATCH / float(steps[timed].mean()),
    }


_TF_CNN_HEADER = (
    "Batch size:  128 global\n             {batch} per device\n"
    "Devices:     ['horovod/gpu:0', 'horovod/gpu:1']\nVariables:   horovod\n"
    "Step\tImg/sec\ttotal_loss"
)
_TF_CNN = "{step}\timages/sec: {mean_rate:.1f} +/- 0.3 (jitter = 1.9)\t7.972"
_MEAN_OF_20 = "time: {window:.4f}  data_time: {window_data:.4f}"

#: The programs by name.
PROGRAMS: dict[str, Program] = {
    "speedometer of a node": Program(
        "mxnet-speedometer",
        "{iso} Node[{rank}] Epoch[{epoch}] Batch [{before}-{step}]\tSpeed: {whole_rate:.2f} samples/sec"
        "\taccuracy=0.000906",
        every=20,
        first=21,
        header="start with arguments Namespace(batch_size={batch}, kv_store='horovod')\n"
        "I am rank {rank} of {size}",
        epoch_end="{iso} Node[{rank}] Epoch[{epoch}] Time cost={cost:.3f}",
        untimed=1,
        number=-1,
        has_data=False,
    ),
    "speedometer": Program(
        "mxnet-speedometer",
        "INFO:root:Epoch[{epoch}] Batch [{step}]\tSpeed: {rate:.2f} samples/sec\taccuracy=0.000906",
        every=20,
        first=21,
        header="INFO:root:start with arguments Namespace(batch_size={batch}); world size: 1",
        epoch_end="INFO:root:Epoch[{epoch}] Time cost={cost:.3f}",
        untimed=1,
        number=-1,
        has_data=False,
    ),
    "speedometer without a metric": Program(
        "mxnet-speedometer",
        "{iso} Iter[{epoch}] Batch [{step}]\tSpeed: {rate:.2f} samples/sec",
        every=20,
        first=21,
        header="batch_size: {batch}",
        untimed=1,
        number=-1,
        has_data=False,
    ),
    "steps of TensorFlow": Program(
        "tensorflow-steps",
        "{glog} keras_utils.py:93] step = {step}, time_taken = {last:.6f}, "
        "examples_per_second = {rate:.6f}, loss = 6.9",
        every=1,
        one_epoch=True,
        has_data=False,
    ),
    "tf_cnn_benchmarks": Program(
        "tf-cnn-benchmarks",
        _TF_CNN,
        every=10,
        header=_TF_CNN_HEADER,
        one_epoch=True,
        has_data=False,
    ),
    "tf_cnn_benchmarks with glog": Program(
        "tf-cnn-benchmarks",
        "{glog} benchmark_cnn.py:2000] " + _TF_CNN,
        every=10,
        header=_TF_CNN_HEADER,
        one_epoch=True,
        has_data=False,
    ),
    "tf_cnn_benchmarks in Kubeflow": Program(
        "tf-cnn-benchmarks",
        "INFO|{iso_t}|/opt/launcher.py|27| " + _TF_CNN,
        every=10,
        header=_TF_CNN_HEADER,
        one_epoch=True,
        has_data=False,
    ),
    "ImageNet": Program(
        "pytorch-meters",
        "Epoch: [{epoch}][{step:>3}/{steps}]\tTime {last:6.3f} ({mean:6.3f})\t"
        "Data {last_data:6.3f} ({mean_data:6.3f})\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.10 (  0.11)",
        every=10,
        first=1,
        number=-1,
    ),
    "ImageNet in newer versions": Program(
        "pytorch-meters",
        "Epoch: [{epoch}][{step:>3}/{steps}]\tTime {last:6.3f} ({mean:6.3f})\t"
        "Data {last_data:6.3f} ({mean_data:6.3f})\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.10 (  0.11)",
        every=10,
        first=1,
    ),
    "ImageNet in seconds": Program(
        "pytorch-meters",
        "Epoch: [{epoch}][{step}/{steps}]\tTime {last:.3f}s ({mean:.3f}s)\tSpeed 181.3 samples/s\t"
        "Data {last_data:.3f}s ({mean_data:.3f}s)\tLoss 0.00123 (0.00127)",
        every=10,
        first=1,
        number=-1,
    ),
    "Apex": Program(
        "pytorch-meters",
        "Epoch: [{epoch}][{step}/{steps}]\tTime {window:.3f} ({mean:.3f})\t"
        "Speed {whole_rate:.3f} ({mean_rate:.3f})\tLoss 6.9001234567 (7.0123)\tPrec@1 0.1 (0.1)",
        every=10,
        has_data=False,
    ),
    "timm": Program(
        "pytorch-meters",
        "Train: {epoch} [{step:>4d}/{steps} (  4%)]  Loss:  6.93 (6.93)  "
        "Time: {last:.3f}s, {rate:>7.2f}/s  ({mean:.3f}s, {mean_rate:>7.2f}/s)  LR: 1.000e-06  "
        "Data: {last_data:.3f} ({mean_data:.3f})",
        every=10,
        first=1,
        number=-1,
    ),
    "GNMT": Program(
        "pytorch-meters",
        "{rank}: TRAIN [{epoch}][{step}/{steps}]\tTime {last:.3f} ({mean:.3f})\t"
        "Data {last_data:.2e} ({mean_data:.2e})\tTok/s 86447 (92506)\tLoss/tok 3.6 (3.9)",
        every=10,
        first=1,
        number=-1,
    ),
    "GNMT's file": Program(
        "pytorch-meters",
        "{seconds_only} - INFO - {rank} - TRAIN [{epoch}][{step}/{steps}]\tTime {last:.3f} ({mean:.3f})"
        "\tData {last_data:.2e} ({mean_data:.2e})\tTok/s 86447 (92506)\tLoss/tok 3.6 (3.9)",
        every=10,
        first=1,
        number=-1,
    ),
    "torchvision": Program(
        "torchvision",
        "Epoch: [{epoch}]  [{step:>4}/{steps}]  eta: 0:30:33  lr: 0.02  loss: 1.7 (1.9)  "
        "time: {window:.4f}  data: {window_data:.4f}  max mem: 40771",
        every=20,
        first=1,
        number=-1,
    ),
    "maskrcnn-benchmark": Program(
        "maskrcnn-benchmark",
        "{iso} maskrcnn_benchmark.trainer INFO: eta: 13:44:46  iter: {step}  loss: 1.7 (1.9)  "
        "loss_box_reg: 0.0300 (0.0310)  time: {median:.4f} ({mean:.4f})  "
        "data: {median_data:.4f} ({mean_data:.4f})  lr: 0.007173  max mem: 3820",
        every=20,
        one_epoch=True,
    ),
    "detectron2": Program(
        "detectron2",
        "[{day} d2.utils.events]:  eta: 0:10:11  iter: {step}  total_loss: 1.9  loss_cls: 0.9  "
        "time: {mean:.4f}  data_time: {window_data:.4f}  lr: 0.00019981  max_mem: 2447M",
        every=20,
        untimed=2,
        number=-1,
        one_epoch=True,
    ),
    "detectron2 in newer versions": Program(
        "detectron2",
        "[{day} d2.utils.events]:  eta: 0:10:11  iter: {step}  total_loss: 1.9    time: {mean:.4f}  "
        "last_time: {last:.4f}  data_time: {window_data:.4f}  last_data_time: {last_data:.4f}   "
        "lr: 0.00019981  max_mem: 2447M",
        every=20,
        untimed=2,
        number=-1,
        one_epoch=True,
    ),
    "mmcv": Program(
        "openmmlab",
        "{iso} - mmdet - INFO - Epoch [{epoch_1}][{step}/{steps}]\tlr: 1.978e-03, eta: 14:12:38, "
        "time: {window:.3f}, data_time: {window_data:.3f}, memory: 3820, loss: 1.7",
        every=50,
    ),
    "mmcv by iterations": Program(
        "openmmlab",
        "{iso} - mmseg - INFO - Iter [{step}/{steps}]\tlr: 1.978e-03, eta: 14:12:38, "
        "time: {window:.3f}, data_time: {window_data:.3f}, memory: 3820, loss: 1.7",
        every=50,
        one_epoch=True,
    ),
    "mmengine": Program(
        "openmmlab",
        "{day} - mmengine - INFO - Epoch(train)  [{epoch_1}][{step:>3}/{steps}]  lr: 1.9784e-03  "
        "eta: 14:12:38  " + _MEAN_OF_20 + "  memory: 3820  loss: 1.7",
        every=20,
    ),
    "mmengine by iterations": Program(
        "openmmlab",
        "{day} - mmengine - INFO - Iter(train) [{step:>3}/{steps}]  lr: 1.9784e-03  eta: 14:12:38  "
        + _MEAN_OF_20
        + "  memory: 3820  loss: 1.7",
        every=20,
        one_epoch=True,
    ),
    "BERT": Program(
        "nvidia-bert",
        "{{'training_steps': {step}, 'average_loss': 5.752604166666667, 'seq/s': {whole_rate!r}, "
        "'skipped_steps': 1, 'timestamp': {unix}}}",
        every=20,
        untimed=20,
        one_epoch=True,
        has_data=False,
    ),
}
Label = Callable[[int, datetime], str]

#: The labels that launchers put before lines.
LABELS: dict[str, Label] = {
    "gloo": lambda rank, _: f"[{rank}]<stdout>:",
    "gloo, stamped": lambda rank, at: f"{at:%a %b %d %H:%M:%S %Y}[{rank}]<stdout>:",
    "openmpi4": lambda rank, _: f"[1,{rank}]<stderr>:",
    "openmpi4, stamped": lambda rank, at: f"{at:%a %b %d %H:%M:%S %Y}[1,{rank}]<stdout>:",
    "openmpi5": lambda rank, _: f"[1,{rank}]<stdout>: ",
    "openmpi5, stamped": lambda rank, at: f"[{at:%a %b %d %H:%M:%S %Y}][1,{rank}]<stdout>: ",
    "a logger": lambda rank, at: f"{_stamps(at)['iso']} - STDOUT - INFO - [1,{rank}]<stdout>:",
    "mpich": lambda rank, _: f"[{rank}] ",
    "torchrun": lambda rank, _: f"[default{rank}]:",
    "srun": lambda rank, _: f"{rank:2}: ",
}


def labelled(program: Program, label: Label, *, rank_zero: bool = False) -> bytes:
    """Return the ranks' output through a launcher, in the order of time.

    Args:
        rank_zero: whether each rank prints that it is rank 0.
    """
    lines = [
        (line.at, rank, label(rank, line.at) + line.text)
        for rank in range(SIZE)
        for line in program.lines(program.truth(1 + rank), 0 if rank_zero else rank)
    ]
    return "".join(text + "\n" for _, _, text in sorted(lines, key=lambda line: line[:2])).encode()
