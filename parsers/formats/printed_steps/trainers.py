"""The table of known trainers: what tells their lines, and what these leave open.

The vocabulary reads their figures. A row says which texts and figures its lines have, which of their
names are the program's own, and what their times mean, so nothing has to confirm them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from typing import Literal, get_args

from ...launcher_output import LineFilter, rank_lines
from ...lines.line_blocks import sample_parts
from ...window_durations import Value
from .figures import EVALUATES, SAMPLE_BYTES, Figure, Kind, figures_of, kind_of
from .rates import PER_DEVICE, PrintedSettings, RateOf, printed_settings
from .vocabulary import Quantity, Word

_HEAD_BYTES = 1 << 20
_MICRO_BATCH = re.compile(rb"\btrain_batch_size=(\d{1,8})\b")
# All ranks of MXNet log their settings before the first one logs rates.
_MXNET_HEAD_BYTES = 4 << 20
_BEFORE_NODES_BYTES = 1 << 19
_NODE = re.compile(rb"Node\[(\d{1,6})\] ")
_DEVICES = re.compile(rb"\bDevices:\s{1,40}\[([^\]\n]{1,65536})\]")
# Each process of Horovod has one of the devices that it lists.
_HOROVOD = b"horovod/"
# The most lines of a part of a file by which a row's lines are found.
_MOST_LINES = 50

#: What a figure is in the lines of a rank (``StepLines``), or their timestamp.
Field = Literal[
    "rank",
    "epoch",
    "step",
    "steps",
    "seconds",
    "mean_seconds",
    "data",
    "mean_data",
    "rate",
    "mean_rate",
    "stamp",
]
_FIELDS: Mapping[Quantity, Field] = {
    "rank": "rank",
    "epoch": "epoch",
    "step": "step",
    "count": "step",
    "total": "steps",
    "time": "seconds",
    "data": "data",
    "rate": "rate",
    "stamp": "stamp",
}
# The mean that follows a value in parentheses.
_MEANS: Mapping[Field, Field] = {
    "seconds": "mean_seconds",
    "data": "mean_data",
    "rate": "mean_rate",
}
# Of several figures before the step or the times of a line, the last one counts.
_LATEST: frozenset[Field] = frozenset({"rank", "epoch", "step"})
_TIMES: frozenset[Field] = frozenset({"seconds", "mean_seconds", "rate", "mean_rate"})
# Fields that a row's lines need not have.
_LinesByFields = dict[tuple[tuple[Field, ...], bool, bool], list[list[Figure]]]
_OPTIONAL: frozenset[Field] = frozenset({"rank", "epoch", "steps", "seconds", "data", "mean_data"})


@dataclass(frozen=True)
class Meaning:
    """What lines leave open."""

    #: The program that prints them.
    known_from: str
    #: The meaning of their times.
    value: Value
    #: Whether that is beyond doubt, as a user says so.
    is_certain: bool = False
    #: The number of last steps that means are over; None for those since the line before.
    window: int | None = None
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
class Shape:
    """What tells the lines of a program from others."""

    #: Texts that each of them has.
    texts: tuple[bytes, ...]
    #: Fields that each of them has; without a mean in parentheses here, they have none.
    fields: frozenset[Field]
    #: Fields of figures with names of its own, and of the numbers right before figures with a name.
    names: Mapping[str, Field] = field(default_factory=dict)
    before: Mapping[str, Field] = field(default_factory=dict)

    def is_in(self, data: bytes) -> bool:
        """Whether a file has any of its lines."""
        return all(text in data for text in self.texts) and any(
            self._figures(figures_of(text)).keys() >= self.fields
            for text in islice(self._texts(data), _MOST_LINES)
        )

    def kind_in(self, data: bytes) -> tuple[Kind, Sequence[Field]] | None:
        """Return its most frequent lines, and the fields of their figures; None without any."""
        if not all(text in data for text in self.texts):
            return None
        lines = self._lines(sample_parts(data, SAMPLE_BYTES // 3)) or self._lines([data])
        if not lines:
            return None
        (fields, *_), figures = max(lines.items(), key=lambda each: (each[0][2], len(each[1])))
        kind = kind_of([*zip(*figures, strict=True)])
        return None if kind is None else (kind, fields)

    def _lines(self, parts: Sequence[bytes]) -> _LinesByFields:
        """Return the figures of the lines in parts of a file, by their fields."""
        lines: _LinesByFields = defaultdict(list)
        for part in parts:
            for text in islice(self._texts(part), _MOST_LINES):
                figures = self._figures(figures_of(text))
                if figures.keys() >= self.fields:
                    of_line = [*figures.values()]
                    goes_on = bool(of_line[-1].after.strip())  # not cut off within a number
                    trains = not EVALUATES.search(of_line[0].before)  # evaluations may look alike
                    lines[tuple(figures), goes_on, trains].append(of_line)
        return lines

    def _texts(self, part: bytes) -> Iterator[str]:
        # Launchers may have cut the longest text less often than all of them.
        needles = (max(self.texts, key=len),)

        def has_texts(line: bytes) -> bool:
            return all(text in line for text in self.texts)

        for line in rank_lines(part, only=LineFilter(needles, has_texts)):
            if has_texts(line.text):
                yield line.text.decode("latin-1")

    def _figures(self, figures: Sequence[Figure]) -> dict[Field, Figure]:
        """Return the figures of a line that have a field, in their order."""
        chosen: dict[Field, Figure] = {}
        for figure, after in zip_longest(figures, figures[1:]):
            name = self._field(figure, after)
            if name is None or (name not in self.fields and name not in _OPTIONAL):
                continue
            if name in _LATEST and not chosen.keys() & ({"step"} - {name} | _TIMES):
                chosen.pop(name, None)
            own_rank = name == "rank" and figure.word.quantity != "rank"
            chosen.setdefault(name, figure._replace(word=Word("rank")) if own_rank else figure)
        has_mean = "mean_seconds" in chosen or "mean_rate" in chosen
        return chosen if has_mean == bool({"mean_seconds", "mean_rate"} & self.fields) else {}

    def _field(self, figure: Figure, after: Figure | None = None) -> Field | None:
        """Return the field of a figure, before another one; None if it has none."""
        if after is not None and after.name in self.before:
            return self.before[after.name]
        quantity = figure.word.quantity
        special = self.names.get(figure.name)
        if special is None and quantity in ("other", "step", "epoch"):
            # A logger's words may precede it.
            special = self.names.get(figure.name.split(" ")[-1])
        if special == "rank" and (after is None or self._field(after) is None):
            # The number of a host has another name after it.
            return None
        known = special or _FIELDS.get(quantity)
        if special is None and known is not None and figure.in_parentheses:
            return _MEANS.get(known)
        return known


@dataclass(frozen=True)
class Trainer:
    """A program whose lines are known."""

    #: Its name, with shapes for ``--read-as``, and what its lines are.
    name: str
    title: str
    meaning: Meaning
    #: The lines about steps; the first ones that a file has count.
    shapes: tuple[Shape, ...] = ()
    #: The lines with durations of epochs.
    epoch_shapes: tuple[Shape, ...] = ()
    #: Without shapes: words of figures in its lines, and others that they may have; None for any.
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


def _shape(
    texts: tuple[bytes, ...],
    fields: str,
    names: Mapping[str, Field] | None = None,
    before: Mapping[str, Field] | None = None,
) -> Shape:
    known = frozenset(name for name in get_args(Field) if name in fields.split())
    return Shape(texts, known, names or {}, before or {})


def _by_words(
    name: str,
    value: Value,
    words: tuple[str, ...],
    others: tuple[str, ...] | None = None,
    time: str = "",
) -> Trainer:
    meaning = Meaning(f"lines about steps of {name}", value)
    return Trainer(name, f"lines of {name}", meaning, words=words, others=others, time=time)


_METERS = "epoch step steps seconds mean_seconds"
# TensorFlow's official models, in some versions about each epoch.
_TAKEN = b"'time_taken': "
_EPOCH_LINES = (_shape((b"BenchmarkMetric: ", b"'epoch':", _TAKEN), "epoch seconds"),)

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
        shapes=(
            _shape((b"TimeHistory: ", b" between steps ", b" and "), "step seconds rate"),
            _shape((b"BenchmarkMetric: ", _TAKEN), "step seconds rate"),
        ),
        epoch_shapes=_EPOCH_LINES,
        certain=True,
    ),
    # Epoch[0] Batch [0-20]  Speed: 1284.10 samples/sec  accuracy=0.4009
    # 2026-11-21 02:28:01,250 Node[3] Epoch[0] Batch [20]  Speed: 1284.10 samples/sec
    # Epoch[0] Time cost=12.345, and GluonCV's [Epoch 0] speed: 3815 samples/sec  time cost: 343.580997
    # A rate is the mean over the batches since the last line; the number in ``Batch`` is the last
    # of them. Scripts may pass the batch size of one rank or of all. ``Iter`` is without a metric.
    Trainer(
        "mxnet-speedometer",
        "what MXNet's Speedometer logs",
        Meaning("what MXNet's Speedometer logged", "mean", settings=_mxnet_settings),
        shapes=(
            _shape(
                (b"Batch [", b"Speed: ", b"samples/sec"),
                "epoch step rate",
                names={"node": "rank", "iter": "epoch"},
            ),
        ),
        epoch_shapes=(
            _shape((b"Epoch[", b"Time cost="), "epoch seconds", names={"node": "rank"}),
            _shape((b"[Epoch ", b"speed: ", b"time cost: "), "epoch rate seconds"),
        ),
    ),
    # I1121 02:28:01.250000 47580 keras_utils.py:93] step = 35, time_taken = 3.276137, loss = 6.9
    Trainer(
        "tensorflow-steps",
        "times of steps that TensorFlow models log",
        Meaning("what TensorFlow's models logged", "step"),
        shapes=(_shape((b"step = ", b"time_taken = "), "step seconds"),),
        epoch_shapes=_EPOCH_LINES,
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
        shapes=(
            _shape(
                (b"images/sec: ", b" +/- "),
                "step mean_rate",
                names={"images sec": "mean_rate"},
                before={"images sec": "step"},
            ),
        ),
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
        shapes=(
            _shape((b"Epoch: [", b"Time "), _METERS),
            _shape((b"TRAIN [",), _METERS + " data", {"train": "epoch"}, {"train": "rank"}),
            _shape((b"Train: ", b"Time: ", b"Data: "), _METERS + " data", {"train": "epoch"}),
        ),
    ),
    # Epoch: [0]  [  60/5005]  eta: 0:28:11  lr: 0.1  loss: 6.9 (7.0)  time: 0.3361  data: 0.0021
    # Both are means over the last 20 steps.
    Trainer(
        "torchvision",
        "what torchvision's training scripts log",
        Meaning("what torchvision's scripts logged", "mean", window=20),
        shapes=(
            _shape((b"Epoch: [", b"eta: ", b"time: ", b"data: "), "epoch step steps seconds data"),
        ),
    ),
    # eta: 13:44:46  iter: 20  loss: 1.7 (1.9)  time: 0.3236 (0.3593)  data: 0.0020 (0.0413)
    # The first number is the median of the last 20 steps, the second one the mean over all so far.
    Trainer(
        "maskrcnn-benchmark",
        "what maskrcnn-benchmark logs",
        Meaning("what maskrcnn-benchmark logged", "median"),
        shapes=(
            _shape(
                (b"eta: ", b"iter: ", b"time: ", b"data: "),
                "step seconds mean_seconds data mean_data",
            ),
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
        shapes=(
            _shape(
                (b" iter: ", b" time: ", b" data_time: ", b" lr: "),
                "step mean_seconds data",
                names={"time": "mean_seconds"},
            ),
        ),
    ),
    # Epoch [1][50/7330]  lr: 1.978e-03, eta: 14:12:38, time: 0.532, data_time: 0.054, memory: 3820
    # 11/21 02:28:01 - mmengine - INFO - Epoch(train)  [1][  50/7330]  time: 0.5320  data_time: 0.0540
    # Both are means over the steps since the last line.
    Trainer(
        "openmmlab",
        "what mmcv and mmengine log",
        Meaning("what mmcv or mmengine logged", "mean"),
        shapes=tuple(
            _shape((start, b" time: ", b" data_time: "), f"{epoch}step steps seconds data")
            for start, epoch in (
                (b"Epoch [", "epoch "),
                (b"Epoch(train) ", "epoch "),
                (b"Iter [", ""),
                (b"Iter(train) ", ""),
            )
        ),
    ),
    # {'training_steps': 20, 'seq/s': 214.0, 'skipped_steps': 1, 'timestamp': 1790000000.1198528}
    # With gradient accumulation, a training step is one micro-batch.
    Trainer(
        "nvidia-bert",
        "what NVIDIA's BERT prints",
        Meaning("what NVIDIA's BERT printed", "mean", settings=_bert_settings),
        shapes=(_shape((b"'training_steps': ", b"'timestamp': "), "step stamp"),),
    ),
    # iteration 20/ 1000 | consumed samples: 640 | elapsed time per iteration (ms): 1398.6 | …
    _by_words(
        "Megatron-LM",
        "mean",
        ("iteration", "consumed samples", "learning rate"),
        time="elapsed time per iteration",
    ),
    _by_words(
        "Megatron-LM's test suite", "mean", ("lm loss", "step interval"), time="iteration time"
    ),
    _by_words("OpenMMLab", "mean", ("mode", "iter", "data time", "memory"), time="time"),
    # iter 20: loss 2.3, time 146.5ms, mfu 17.3%
    _by_words("nanoGPT", "last", ("iter", "loss", "time"), ("mfu",), time="time"),
    _by_words("llama2.c", "last", ("loss", "lr", "mfu"), ("",)),
    _by_words("NeMo", "last", ("global step", "reduced train loss"), time="train step timing"),
    _by_words("TensorFlow's estimators", "total", ("info tensorflow loss", "step")),
    # Train epoch time: 8924.670 ms, per step time: 143.946 ms
    *(
        _by_words("MindSpore", "total", ("loss is", "per step time"), time=name)
        for name in ("train epoch time", "epoch time")
    ),
)
