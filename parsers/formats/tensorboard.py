"""TensorBoard's event files: scalars with the times of epochs.

A file is a sequence of TFRecords, each with an ``Event`` of protobuf:

    length (8 bytes), checksum of it (4), the event, checksum of it (4)

The reader takes an event's wall time, its step and the scalars of its summary. Keras' callback writes
``epoch_loss`` and others at the ends of epochs including validation, ``epoch_steps_per_second``, and
``batch_steps_per_second``, which leaves out the wait for the batch. ``metric_times`` finds epochs and
steps in all other scalars.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from stallscope.errors import UnreadableError
from stallscope.formatting.lists import counted
from stallscope.run import Problem

from ..base import Parsed, Parser
from ..epochs_only import epochs_log, in_one_file
from ..rank_names import rank_in
from .printed_steps.metric_times import Value, times_in, with_step_times

KNOWN_FROM = "scalars in TensorBoard's event files"

_HEAD = re.compile(rb"(?s).{12}\x09.{8}(?:\x10.)?\x1a.brain\.Event:\d")
# Keras writes validation into a separate folder; epochs are those of training.
_VALIDATION = re.compile(r"(?:^|/)(?:validation|val|eval)/[^/]*$")
_OF_TRAINING = re.compile(r"(?:/|^)train$")
_EPOCH_RATE, _BATCH_RATE = "epoch_steps_per_second", "batch_steps_per_second"
# Graphs and images are longer than any scalar.
_LONGEST = 64 << 10
_LATEST_S = 2**42 / 1e3
_MOST_STEPS = 2**52


# -- TFRecords, the frame of events ----------------------------------------------------------------


def _table() -> Iterator[int]:
    """Yield the CRC-32C table, one entry per byte."""
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        yield crc


_TABLE = tuple(_table())


def masked_checksum(data: bytes) -> int:
    """Return the CRC-32C of a few bytes as TFRecord writes it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records in a file, up to the first damage."""
    at = 0
    while at + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        if length > len(data) - at - 16 or checksum != masked_checksum(data[at : at + 8]):
            return
        yield data[at + 12 : at + 12 + length]
        at += 16 + length


# -- events ----------------------------------------------------------------------------------------


class TensorboardParser(Parser):
    name: ClassVar[str] = "tensorboard"
    title: ClassVar[str] = "TensorBoard's event files"
    suffix: ClassVar[str] = ".tfevents.*"
    has_steps: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        return _HEAD.match(head) is not None and _VALIDATION.search(file_name) is None

    def parse(self, path: str, data: bytes) -> Parsed:
        scalars: dict[str, list[Value]] = defaultdict(list)
        read = 0
        for record in records(data):
            read += 16 + len(record)
            if len(record) > _LONGEST:
                continue
            for tag, value in _scalars(record):
                scalars[tag].append(value)
        histories = {
            tag: sorted(values, key=lambda value: value.ms)
            for tag, values in scalars.items()
            if len({value.step for value in values}) > 1
        }
        times = times_in(histories)
        rates = _rates(histories)
        zero = min((values[0].ms for values in histories.values()), default=0)
        anchor = {"monotonic_ns": 0, "wall_ns": zero * 10**6}
        own_facts = {**rates, "known_from": KNOWN_FROM, "anchor": anchor}
        run_name = _run_name(path)
        if run_name is not None:
            own_facts["run_name"] = run_name
        cut = len(data) - read
        problem = Problem(path, f"its last {cut} bytes are torn or damaged, and were left out")
        logs = [
            epochs_log(
                path,
                rank=rank_in(path)[0] or 0,
                part=part,
                facts={**known, **own_facts},
                epochs=epochs,
                ended=False,
                problems=(problem,) if cut and not part else (),
            )
            for part, (known, epochs) in enumerate(times.by_fit(zero))
        ]
        if len(logs) == 1 and not rates:
            logs = [with_step_times(logs[0], times, histories, zero)]
        if times.facts is None and not rates and "windows" not in logs[0].log.facts:
            raise UnreadableError(
                f"{path}: TensorBoard's events without scalars of epochs or steps: {_named(scalars)}"
            )
        return in_one_file(logs, len(data))


def _scalars(event: bytes) -> Iterator[tuple[str, Value]]:
    """Yield the scalars of an event, with their tags."""
    fields = dict(_fields(event))
    wall, step = fields.get(1), fields.get(2, 0)
    if not isinstance(wall, bytes) or len(wall) != 8 or not isinstance(step, int):
        return
    (seconds,) = struct.unpack("<d", wall)
    summary = fields.get(5)
    if not 0 < seconds < _LATEST_S or step >= _MOST_STEPS or not isinstance(summary, bytes):
        return
    for number, content in _fields(summary):
        if number == 1 and isinstance(content, bytes):
            value_fields = dict(_fields(content))
            tag, value = value_fields.get(1), _number(value_fields)
            if isinstance(tag, bytes) and value is not None:
                yield tag.decode("utf-8", "replace"), Value(int(seconds * 1e3), step, value)


def _number(value: Mapping[int, int | bytes]) -> float | None:
    """Return the number of a summary's value: plain, or a tensor with one float in it."""
    plain, tensor = value.get(2), value.get(8)
    if isinstance(plain, bytes) and len(plain) == 4:
        return float(struct.unpack("<f", plain)[0])
    if not isinstance(tensor, bytes):
        return None
    fields = dict(_fields(tensor))
    content = fields.get(4, fields.get(5))
    if fields.get(1) == 1 and isinstance(content, bytes) and len(content) == 4:
        return float(struct.unpack("<f", content)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield numbers and contents of a protobuf message's fields, up to the first damage."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            content, at = _varint(message, at)
            if at <= len(message):
                yield key >> 3, content
            continue
        if kind == 2:
            length, at = _varint(message, at)
        else:
            length = {1: 8, 5: 4}.get(kind, len(message) + 1)
        if at + length > len(message):
            return
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length number and its end, which is after the message if it is torn."""
    number = 0
    for place in range(10):
        if at + place >= len(message):
            break
        byte = message[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    return 0, len(message) + 1


def _rates(histories: Mapping[str, Sequence[Value]]) -> dict[str, Any]:
    """Return a step's mean time as Keras has measured it."""
    for tag in (_EPOCH_RATE, _BATCH_RATE):
        # The first epoch or batch traces.
        lengths = [1e3 / rate.value for rate in histories.get(tag, ())[1:] if rate.value]
        lengths = [length for length in lengths if 0 < length < _MOST_STEPS]
        if lengths:
            many = f"{counted(len(lengths), 'value')} of {tag}"
            without = "" if tag == _EPOCH_RATE else ", without the wait for batches"
            return {
                "step_ms": sum(lengths) / len(lengths),
                "step_precision_ms": 1e-3,
                "precision": f"epochs, to the millisecond; a step's mean over {many}{without}",
            }
    return {}


def _run_name(path: str) -> str | None:
    """Return the folder that was given to the callback, None if the path does not contain it."""
    return _OF_TRAINING.sub("", path.rpartition("/")[0]) or None


def _named(scalars: Mapping[str, object]) -> str:
    # Damaged names hold anything.
    names = ["".join(filter(str.isprintable, name))[:40] for name in sorted(scalars)[:5]]
    return f"there are {', '.join(names)}" if names else "there are none"
