"""The table of known trainers: what tells their lines, and what these leave open.

A row has the patterns of its lines, which are tried before the vocabulary, or only words, where the
vocabulary reads the figures and nothing in the lines confirms them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...window_durations import Value
from .rates import PER_DEVICE, PrintedSettings, RateOf, printed_settings

_HEAD_BYTES = 1 << 20
_MICRO_BATCH = re.compile(rb"\btrain_batch_size=(\d{1,8})\b")
# All ranks of MXNet log their settings before the first one logs rates.
_MXNET_HEAD_BYTES = 4 << 20
_BEFORE_NODES_BYTES = 1 << 19
_NODE = re.compile(rb"Node\[(\d{1,6})\] ")
_DEVICES = re.compile(rb"\bDevices:\s{1,40}\[([^\]\n]{1,65536})\]")
# Each process of Horovod has one of the devices that it lists.
_HOROVOD = b"horovod/"


@dataclass(frozen=True)
class Meaning:
    """What lines leave open."""

    #: The program that prints them.
    known_from: str
    #: The meaning of their times.
    value: Value
    #: Whether that is beyond doubt, as a user says so.
    is_certain: bool = False
    #: Whose their rates are; None if that varies.
    rate_of: RateOf | None = None
    #: The printed number of the first step; None if that varies.
    first_step: int | None = None
    #: The number of first steps that are not in means so far.
    untimed: int = 0
    #: Reads batch sizes from a log, given the number of ranks if it is known.
    settings: Callable[[bytes, int | None], PrintedSettings] = printed_settings
    framework: str | None = None


@dataclass(frozen=True)
class Trainer:
    """A program whose lines are known."""

    #: Its name, with patterns for ``--read-as``, and what its lines are.
    name: str
    title: str
    meaning: Meaning
    #: Patterns of the lines about steps; the first one that a file has counts.
    patterns: tuple[str, ...] = ()
    #: Patterns of the lines with durations of epochs, with ``epoch`` and ``seconds``.
    epoch_patterns: tuple[str, ...] = ()
    #: Without patterns: words of figures in its lines, and others that they may have; None for any.
    words: tuple[str, ...] = ()
    others: tuple[str, ...] | None = None
    #: The words before the time of a step; empty for one without words.
    time: str = ""
    #: Whether the first bytes of its logs are beyond doubt.
    certain: bool = False

    def has_time(self, name: str) -> bool:
        """Whether a figure's name is that of its times."""
        return name.startswith(self.time) if self.time else not name

    def prints(self, words: frozenset[str]) -> bool:
        """Whether lines with these words are its lines, by their words alone."""
        known = {*self.words, *(words if self.others is None else self.others)}
        return bool(self.words) and known >= words >= {*self.words}


# -- batch sizes and numbers of ranks in logs -------------------------------------------------------


def _bert_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the micro-batch of a rank; global batch sizes in such logs are those of updates."""
    match = _MICRO_BATCH.search(data[:_HEAD_BYTES])
    batch = None if match is None else int(match[1]) or None
    return PrintedSettings(batch, None if batch is None or ranks is None else batch * ranks, ranks)


def _mxnet_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read batch sizes, and the number of ranks if all ranks have logged something."""
    nodes = {int(number) for number in _NODE.findall(data[:_MXNET_HEAD_BYTES])}
    if ranks is None and len(nodes) > 1 and max(nodes) == len(nodes) - 1:
        ranks = len(nodes)
    # Launchers of a thousand ranks print more than is searched for settings.
    at = max(data.find(b"Node[") - _BEFORE_NODES_BYTES, 0)
    return printed_settings(data[at : at + _MXNET_HEAD_BYTES], ranks)


def _tf_cnn_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the batch size of a process: that of a device times the process's devices."""
    settings = printed_settings(data, ranks)
    per_device, devices = (form.search(data[:_HEAD_BYTES]) for form in (PER_DEVICE, _DEVICES))
    if per_device is None or devices is None:
        return replace(settings, rank_batch=None)
    count = 1 if _HOROVOD in devices[1] else devices[1].count(b",") + 1
    return replace(settings, rank_batch=int(per_device[1]) * count or None)


def _only_ranks(_: bytes, ranks: int | None) -> PrintedSettings:
    """Return only the number of ranks, as printed batch sizes may be of one rank or of all."""
    return PrintedSettings(ranks=ranks)


# -- the table -------------------------------------------------------------------------------------

_TIME, _DATA = "Time {seconds} ({mean_seconds})", "{}Data {data} ({mean_data})"
_WITH_UNITS = "Time {seconds}s ({mean_seconds}s){}Data {data}s ({mean_data}s)"
_IMAGENET = "{}Epoch: [{epoch}][{step}/{steps}] "
_GNMT = "TRAIN [{epoch}][{step}/{steps}] "
_MEAN = "{} iter: {step} {} time: {mean_seconds}"
_SPEED = "Speed: {rate} samples/sec"
_NODES = ("{}Node[{rank}] ", "{}")
# TensorFlow's official models, in some versions about each epoch.
_METRIC, _TAKEN = "{}BenchmarkMetric: {}", "'time_taken': {seconds}"
_EPOCH_LINES = (f"{_METRIC}'epoch':{{epoch}}, {_TAKEN}",)

TRAINERS = (
    # TimeHistory: 12.34 seconds, 829.82 examples/second between steps 0 and 100
    # BenchmarkMetric: {'global step':100, 'time_taken': 12.34,'examples_per_second': 829.82}
    # Steps are counted over the job, and examples over all ranks, as the models' batch size is.
    Trainer(
        "time-history",
        "what TimeHistory logs",
        Meaning(
            "what TimeHistory logged",
            "total",
            rate_of="all ranks",
            first_step=1,
            settings=_only_ranks,
            framework="tensorflow",
        ),
        patterns=(
            "{}TimeHistory: {seconds} seconds, {rate} examples/second between steps {} and {step}",
            f"{_METRIC}'global step':{{step}}, {_TAKEN},{{}}'examples_per_second': {{rate}}",
            f"{_METRIC}'num_batches':{{step}}, {_TAKEN},{{}}'examples_per_second': {{rate}}",
        ),
        epoch_patterns=_EPOCH_LINES,
        certain=True,
    ),
    # Epoch[0] Batch [0-20]  Speed: 1284.10 samples/sec  accuracy=0.4009
    # 2026-11-21 02:28:01,250 Node[3] Epoch[0] Batch [20]  Speed: 1284.10 samples/sec
    # Epoch[0] Time cost=12.345
    # A rate is the mean over the batches since the last line; the number in ``Batch`` is the last
    # of them. Scripts may pass the batch size of one rank or of all. ``Iter`` is without a metric.
    Trainer(
        "mxnet-speedometer",
        "what MXNet's Speedometer logs",
        Meaning("what MXNet's Speedometer logged", "mean", settings=_mxnet_settings),
        patterns=tuple(
            f"{node}{batch} {_SPEED}"
            for node in _NODES
            for batch in (
                "Epoch[{epoch}] Batch [{}-{step}]",
                "Epoch[{epoch}] Batch [{step}]",
                "Iter[{epoch}] Batch [{step}]",
            )
        ),
        epoch_patterns=tuple(f"{node}Epoch[{{epoch}}] Time cost={{seconds}}" for node in _NODES),
    ),
    # I1121 02:28:01.250000 47580 keras_utils.py:93] step = 35, time_taken = 3.276137, loss = 6.9
    Trainer(
        "tensorflow-steps",
        "times of steps that TensorFlow models log",
        Meaning("what TensorFlow's models logged", "step"),
        patterns=("{}step = {step}, time_taken = {seconds}",),
        epoch_patterns=_EPOCH_LINES,
    ),
    # Batch size:  512 global
    #              64 per device
    # Devices:     ['horovod/gpu:0', 'horovod/gpu:1']
    # 10  images/sec: 40.4 +/- 0.0 (jitter = 0.0)  7.972
    # A rate is that of one process: its batch divided by the mean time of its steps so far, without
    # warm-up.
    Trainer(
        "tf-cnn-benchmarks",
        "rates that tf_cnn_benchmarks prints",
        Meaning(
            "what tf_cnn_benchmarks printed", "mean", rate_of="one rank", settings=_tf_cnn_settings
        ),
        patterns=("{}{step} images/sec: {mean_rate} +/- ",),
    ),
    # Epoch: [0][  10/5005]  Time  0.353 ( 0.623)  Data  0.001 ( 0.213)  Loss 6.9 (7.0)
    # Epoch: [0][10/5005]  Time 0.353 (0.623)  Speed 2175.6 (1232.7)  Loss 6.9 (7.0)
    # 0: TRAIN [0][420/1938]  Time 0.120 (0.153)  Data 1.76e-04 (1.20e-03)  Tok/s 86447 (92506)
    # Train: 0 [  50/1251 (  4%)]  Time: 0.353s, 725.21/s  (0.623s, 410.91/s)  Data: 0.001 (0.213)
    # The first number is that of the last batch, the second one the mean over the epoch so far.
    # ``Data`` is the wait for the batch; Apex's example does not measure it.
    Trainer(
        "pytorch-meters",
        "meters of PyTorch's examples",
        Meaning("meters of PyTorch's examples", "last"),
        patterns=(
            f"{_IMAGENET}{_TIME}{_DATA}",
            f"{_IMAGENET}{_WITH_UNITS}",
            f"{{rank}}: {_GNMT}{_TIME}{_DATA}",
            f"{{}} - INFO - {{rank}} - {_GNMT}{_TIME}{_DATA}",
            f"{{}}{_GNMT}{_TIME}{_DATA}",
            "{}Train: {epoch} [{step}/{steps} {}Time: {seconds}s, {}({mean_seconds}s, "
            "{}Data: {data} ({mean_data})",
            f"{_IMAGENET}{_TIME}",
        ),
    ),
    # Epoch: [0]  [  60/5005]  eta: 0:28:11  lr: 0.1  loss: 6.9 (7.0)  time: 0.3361  data: 0.0021
    # Both are means over the last 20 steps.
    Trainer(
        "torchvision",
        "what torchvision's training scripts log",
        Meaning("what torchvision's scripts logged", "mean"),
        patterns=("{}Epoch: [{epoch}] [{step}/{steps}] eta: {} time: {seconds} data: {data}",),
    ),
    # eta: 13:44:46  iter: 20  loss: 1.7 (1.9)  time: 0.3236 (0.3593)  data: 0.0020 (0.0413)
    # The first number is the median of the last 20 steps, the second one the mean over all so far.
    Trainer(
        "maskrcnn-benchmark",
        "what maskrcnn-benchmark logs",
        Meaning("what maskrcnn-benchmark logged", "median"),
        patterns=(
            "{}eta: {}iter: {step} {} time: {seconds} ({mean_seconds}) data: {data} ({mean_data})",
        ),
    ),
    # [11/21 02:28:07 d2.utils.events]:  iter: 19  loss: 1.9  time: 0.2153  data_time: 0.0131  lr: 0.1
    # ``time`` is the mean over all steps so far except the first two, ``data_time`` the mean over
    # the last 20 steps, each with the longest wait of any rank. Newer versions add the values of
    # the last step. Steps are counted from 0.
    Trainer(
        "detectron2",
        "what detectron2 logs",
        Meaning("what detectron2 logged", "last", first_step=0, untimed=2),
        patterns=(
            f"{_MEAN} last_time: {{seconds}} data_time: {{data}} last_data_time: ",
            f"{_MEAN} data_time: {{data}} lr: ",
        ),
    ),
    # Epoch [1][50/7330]  lr: 1.978e-03, eta: 14:12:38, time: 0.532, data_time: 0.054, memory: 3820
    # 11/21 02:28:01 - mmengine - INFO - Epoch(train)  [1][  50/7330]  time: 0.5320  data_time: 0.0540
    # Both are means over the steps since the last line.
    Trainer(
        "openmmlab",
        "what mmcv and mmengine log",
        Meaning("what mmcv or mmengine logged", "mean"),
        patterns=tuple(
            f"{{}}{place} {times}"
            for place in (
                "Epoch [{epoch}][{step}/{steps}]",
                "Epoch(train) [{epoch}][{step}/{steps}]",
                "Iter [{step}/{steps}]",
                "Iter(train) [{step}/{steps}]",
            )
            for times in (
                "{} time: {seconds}, data_time: {data},",
                "{} time: {seconds} data_time: {data}",
            )
        ),
    ),
    # {'training_steps': 20, 'seq/s': 214.0, 'skipped_steps': 1, 'timestamp': 1790000000.1198528}
    # With gradient accumulation, a training step is one micro-batch.
    Trainer(
        "nvidia-bert",
        "what NVIDIA's BERT prints",
        Meaning("what NVIDIA's BERT printed", "mean", settings=_bert_settings),
        patterns=("{}'training_steps': {step}, {}'timestamp': {time}",),
    ),
    # iteration 20/ 1000 | consumed samples: 640 | elapsed time per iteration (ms): 1398.6 | …
    Trainer(
        "Megatron-LM",
        "lines of Megatron-LM",
        Meaning("lines about steps of Megatron-LM", "mean"),
        words=("iteration", "consumed samples", "learning rate"),
        time="elapsed time per iteration",
    ),
    Trainer(
        "Megatron-LM's test suite",
        "records of Megatron-LM's test suite",
        Meaning("lines about steps of Megatron-LM's test suite", "mean"),
        words=("lm loss", "step interval"),
        time="iteration time",
    ),
    Trainer(
        "OpenMMLab",
        "records of OpenMMLab",
        Meaning("lines about steps of OpenMMLab", "mean"),
        words=("mode", "iter", "data time", "memory"),
        time="time",
    ),
    # iter 20: loss 2.3, time 146.5ms, mfu 17.3%
    Trainer(
        "nanoGPT",
        "lines of nanoGPT",
        Meaning("lines about steps of nanoGPT", "last"),
        words=("iter", "loss", "time"),
        others=("mfu",),
        time="time",
    ),
    Trainer(
        "llama2.c",
        "lines of llama2.c",
        Meaning("lines about steps of llama2.c", "last"),
        words=("loss", "lr", "mfu"),
        others=("",),
    ),
    Trainer(
        "NeMo",
        "lines of NeMo",
        Meaning("lines about steps of NeMo", "last"),
        words=("global step", "reduced train loss"),
        time="train step timing",
    ),
    Trainer(
        "TensorFlow's estimators",
        "lines of TensorFlow's estimators",
        Meaning("lines about steps of TensorFlow's estimators", "total"),
        words=("info tensorflow loss", "step"),
    ),
)
