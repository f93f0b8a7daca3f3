"""Read the steps that trainers print: one class per trainer.

    Epoch: [0][  10/5005]  Time  0.353 ( 0.623)  Data  0.001 ( 0.213)  Loss 6.9 (7.0)
    Epoch: [0][10/5005]  Time 0.353 (0.623)  Speed 2175.6 (1232.7)  Loss 6.9 (7.0)
    0: TRAIN [0][420/1938]  Time 0.120 (0.153)  Data 1.76e-04 (1.20e-03)  Tok/s 86447 (92506)
    Train: 0 [  50/1251 (  4%)]  Time: 0.353s, 725.21/s  (0.623s, 410.91/s)  Data: 0.001 (0.213)

The first number is that of the last batch, the second one the mean over the epoch so far. ``Data`` is
the wait for the batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from .printed_step_parser import Meaning, PrintedStepsParser
from .rates import PER_DEVICE, PrintedSettings, printed_settings

_TIME = "Time {seconds} ({mean_seconds})"
_TIME_S = "Time {seconds}s ({mean_seconds}s)"
_DATA, _DATA_S = "{}Data {data} ({mean_data})", "{}Data {data}s ({mean_data}s)"
_IMAGENET = "{}Epoch: [{epoch}][{step}/{steps}] "
_GNMT = "TRAIN [{epoch}][{step}/{steps}] "
_TIMM = (
    "{}Train: {epoch} [{step}/{steps} {}Time: {seconds}s, {}({mean_seconds}s, "
    "{}Data: {data} ({mean_data})"
)
_MEAN = "{} iter: {step} {} time: {mean_seconds}"
_PLACES = (
    "Epoch [{epoch}][{step}/{steps}] ",
    "Epoch(train) [{epoch}][{step}/{steps}] ",
    "Iter [{step}/{steps}] ",
    "Iter(train) [{step}/{steps}] ",
)
_TIMES = ("{} time: {seconds}, data_time: {data},", "{} time: {seconds} data_time: {data}")
_HEAD_BYTES = 1 << 20
_MICRO_BATCH = re.compile(rb"\btrain_batch_size=(\d{1,8})\b")
_SPEED = "Speed: {rate} samples/sec"
_EPOCH = ("Epoch[{epoch}] Batch [{}-{step}]", "Epoch[{epoch}] Batch [{step}]")
# Without a metric.
_ITERATION = "Iter[{epoch}] Batch [{step}]"
_MXNET_PLACES = ("{}Node[{rank}] ", "{}")
# All ranks log their settings before the first one logs rates.
_MXNET_HEAD_BYTES = 4 << 20
_BEFORE_NODES_BYTES = 1 << 19
_NODE = re.compile(rb"Node\[(\d{1,6})\] ")
_DEVICES = re.compile(rb"\bDevices:\s{1,40}\[([^\]\n]{1,65536})\]")
# Each process of Horovod has one of the devices that it lists.
_HOROVOD = b"horovod/"
_LINES = (
    "{}TimeHistory: {seconds} seconds, {rate} examples/second between steps {} and {step}",
    "{}BenchmarkMetric: {}'global step':{step}, 'time_taken': {seconds},{}'examples_per_second': {rate}",
    "{}BenchmarkMetric: {}'num_batches':{step}, 'time_taken': {seconds},{}'examples_per_second': {rate}",
)
#: Lines of some versions about each epoch.
EPOCH_LINES = ("{}BenchmarkMetric: {}'epoch':{epoch}, 'time_taken': {seconds}",)


class PytorchMetersParser(PrintedStepsParser):
    name: ClassVar[str] = "pytorch-meters"
    title: ClassVar[str] = "meters of PyTorch's examples"
    patterns: ClassVar[Sequence[str]] = (
        f"{_IMAGENET}{_TIME}{_DATA}",
        f"{_IMAGENET}{_TIME_S}{_DATA_S}",
        f"{{rank}}: {_GNMT}{_TIME}{_DATA}",
        f"{{}} - INFO - {{rank}} - {_GNMT}{_TIME}{_DATA}",
        f"{{}}{_GNMT}{_TIME}{_DATA}",
        _TIMM,
        # Apex's example does not measure the wait for data.
        f"{_IMAGENET}{_TIME}",
    )
    meaning: ClassVar[Meaning] = Meaning("meters of PyTorch's examples", "last")


# -- Read times that torchvision's training scripts log, and programs with the same logger --------
#
#     Epoch: [0]  [  60/5005]  eta: 0:28:11  lr: 0.1  loss: 6.9 (7.0)  time: 0.3361  data: 0.0021
#
# Both are means over the last 20 steps.


class TorchvisionParser(PrintedStepsParser):
    name: ClassVar[str] = "torchvision"
    title: ClassVar[str] = "what torchvision's training scripts log"
    patterns: ClassVar[Sequence[str]] = (
        "{}Epoch: [{epoch}] [{step}/{steps}] eta: {} time: {seconds} data: {data}",
    )
    meaning: ClassVar[Meaning] = Meaning("what torchvision's scripts logged", "mean")


# -- Read times that detectron2 logs --------------------------------------------------------------
#
#     [11/21 02:28:07 d2.utils.events]:  iter: 19  loss: 1.9  time: 0.2153  data_time: 0.0131  lr: 0.0001
#
# ``time`` is the mean over all steps so far except the first two, ``data_time`` the mean over the
# last 20 steps, each with the longest wait of any rank. Newer versions add the values of the last
# step. Steps are counted from 0.


class Detectron2Parser(PrintedStepsParser):
    name: ClassVar[str] = "detectron2"
    title: ClassVar[str] = "what detectron2 logs"
    patterns: ClassVar[Sequence[str]] = (
        f"{_MEAN} last_time: {{seconds}} data_time: {{data}} last_data_time: ",
        f"{_MEAN} data_time: {{data}} lr: ",
    )
    meaning: ClassVar[Meaning] = Meaning("what detectron2 logged", "last", first_step=0, untimed=2)


# -- Read times that maskrcnn-benchmark logs ------------------------------------------------------
#
#     eta: 13:44:46  iter: 20  loss: 1.7 (1.9)  time: 0.3236 (0.3593)  data: 0.0020 (0.0413)  lr: 0.007
#
# The first number is the median of the last 20 steps, the second one the mean over all steps so
# far.


class MaskrcnnBenchmarkParser(PrintedStepsParser):
    name: ClassVar[str] = "maskrcnn-benchmark"
    title: ClassVar[str] = "what maskrcnn-benchmark logs"
    patterns: ClassVar[Sequence[str]] = (
        "{}eta: {}iter: {step} {} time: {seconds} ({mean_seconds}) data: {data} ({mean_data})",
    )
    meaning: ClassVar[Meaning] = Meaning("what maskrcnn-benchmark logged", "median")


# -- Read times that mmcv and mmengine log --------------------------------------------------------
#
#     Epoch [1][50/7330]  lr: 1.978e-03, eta: 14:12:38, time: 0.532, data_time: 0.054, memory: 3820
#     11/21 02:28:01 - mmengine - INFO - Epoch(train)  [1][  50/7330]  time: 0.5320  data_time: 0.0540
#
# Both are means over the steps since the last line.


class OpenmmlabParser(PrintedStepsParser):
    name: ClassVar[str] = "openmmlab"
    title: ClassVar[str] = "what mmcv and mmengine log"
    patterns: ClassVar[Sequence[str]] = tuple(
        f"{{}}{place}{times}" for place in _PLACES for times in _TIMES
    )
    meaning: ClassVar[Meaning] = Meaning("what mmcv or mmengine logged", "mean")


# -- Read dicts that NVIDIA's BERT prints ---------------------------------------------------------
#
#     {'training_steps': 20, 'seq/s': 214.0, 'skipped_steps': 1, 'timestamp': 1790000000.1198528}
#
# With gradient accumulation, a training step is one micro-batch.


def _settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the micro-batch of a rank; global batch sizes in such logs are those of updates."""
    match = _MICRO_BATCH.search(data[:_HEAD_BYTES])
    batch = None if match is None else int(match[1]) or None
    return PrintedSettings(batch, None if batch is None or ranks is None else batch * ranks, ranks)


class NvidiaBertParser(PrintedStepsParser):
    name: ClassVar[str] = "nvidia-bert"
    title: ClassVar[str] = "what NVIDIA's BERT prints"
    patterns: ClassVar[Sequence[str]] = ("{}'training_steps': {step}, {}'timestamp': {time}",)
    meaning: ClassVar[Meaning] = Meaning("what NVIDIA's BERT printed", "mean", settings=_settings)


# -- Read rates that MXNet's Speedometer logs -----------------------------------------------------
#
#     Epoch[0] Batch [0-20]  Speed: 1284.10 samples/sec  accuracy=0.4009
#     2026-11-21 02:28:01,250 Node[3] Epoch[0] Batch [20]  Speed: 1284.10 samples/sec  accuracy=0.4009
#     Epoch[0] Time cost=12.345
#
# A rate is the mean over the batches since the last line; the number in ``Batch`` is the last of
# them. Scripts may pass the batch size of one rank or of all.


def _mxnet_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read batch sizes, and the number of ranks if all ranks have logged something."""
    nodes = {int(number) for number in _NODE.findall(data[:_MXNET_HEAD_BYTES])}
    if ranks is None and len(nodes) > 1 and max(nodes) == len(nodes) - 1:
        ranks = len(nodes)
    # Launchers of a thousand ranks print more than is searched for settings.
    at = max(data.find(b"Node[") - _BEFORE_NODES_BYTES, 0)
    return printed_settings(data[at : at + _MXNET_HEAD_BYTES], ranks)


class MxnetSpeedometerParser(PrintedStepsParser):
    name: ClassVar[str] = "mxnet-speedometer"
    title: ClassVar[str] = "what MXNet's Speedometer logs"
    patterns: ClassVar[Sequence[str]] = tuple(
        f"{place}{batches} {_SPEED}" for place in _MXNET_PLACES for batches in (*_EPOCH, _ITERATION)
    )
    epoch_patterns: ClassVar[Sequence[str]] = tuple(
        f"{place}Epoch[{{epoch}}] Time cost={{seconds}}" for place in _MXNET_PLACES
    )
    meaning: ClassVar[Meaning] = Meaning(
        "what MXNet's Speedometer logged", "mean", settings=_mxnet_settings
    )


# -- Read rates that tf_cnn_benchmarks prints -----------------------------------------------------
#
#     Batch size:  512 global
#                  64 per device
#     Devices:     ['horovod/gpu:0', 'horovod/gpu:1']
#     Step  Img/sec  total_loss
#     10  images/sec: 40.4 +/- 0.0 (jitter = 0.0)  7.972
#
# A rate is that of one process: its batch divided by the mean time of its steps so far, without
# warm-up.


def _tf_cnn_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the batch size of a process: that of a device times the process's devices."""
    settings = printed_settings(data, ranks)
    per_device, devices = (form.search(data[:_HEAD_BYTES]) for form in (PER_DEVICE, _DEVICES))
    if per_device is None or devices is None:
        return replace(settings, rank_batch=None)
    count = 1 if _HOROVOD in devices[1] else devices[1].count(b",") + 1
    return replace(settings, rank_batch=int(per_device[1]) * count or None)


class TfCnnBenchmarksParser(PrintedStepsParser):
    name: ClassVar[str] = "tf-cnn-benchmarks"
    title: ClassVar[str] = "rates that tf_cnn_benchmarks prints"
    patterns: ClassVar[Sequence[str]] = ("{}{step} images/sec: {mean_rate} +/- ",)
    meaning: ClassVar[Meaning] = Meaning(
        "what tf_cnn_benchmarks printed", "mean", rate_of="one rank", settings=_tf_cnn_settings
    )


# -- Read durations of several steps, as TimeHistory of TensorFlow's official models logs them ----
#
#     TimeHistory: 12.34 seconds, 829.82 examples/second between steps 0 and 100
#     BenchmarkMetric: {'global step':100, 'time_taken': 12.340000,'examples_per_second': 829.821717}
#
# Steps are counted over the job, and examples over all ranks, as the models' batch size is.


def _time_history_settings(_: bytes, ranks: int | None) -> PrintedSettings:
    """Return only the number of ranks, as printed batch sizes may be of one rank or of all."""
    return PrintedSettings(ranks=ranks)


class TimeHistoryParser(PrintedStepsParser):
    name: ClassVar[str] = "time-history"
    title: ClassVar[str] = "what TimeHistory logs"
    certain: ClassVar[bool] = True
    patterns: ClassVar[Sequence[str]] = _LINES
    epoch_patterns: ClassVar[Sequence[str]] = EPOCH_LINES
    meaning: ClassVar[Meaning] = Meaning(
        "what TimeHistory logged",
        "total",
        rate_of="all ranks",
        first_step=1,
        settings=_time_history_settings,
        framework="tensorflow",
    )


# -- Read times of single steps that TensorFlow models log ----------------------------------------
#
# I1121 02:28:01.250000 47580 keras_utils.py:93] step = 35, time_taken = 3.276137, loss = 6.9


class TensorflowStepsParser(PrintedStepsParser):
    name: ClassVar[str] = "tensorflow-steps"
    title: ClassVar[str] = "times of steps that TensorFlow models log"
    patterns: ClassVar[Sequence[str]] = ("{}step = {step}, time_taken = {seconds}",)
    epoch_patterns: ClassVar[Sequence[str]] = EPOCH_LINES
    meaning: ClassVar[Meaning] = Meaning("what TensorFlow's models logged", "step")
