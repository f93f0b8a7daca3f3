"""Measure the CPU time of each part of reading launchers' output, against ``bytes.splitlines``.

    python benchmarks/printed_output.py [--megabytes 40] [--ranks 16]

In some kinds of output ranks print their own lines and, at the ends of epochs, Keras's. Others have
a progress bar, as ``verbose=1`` prints it: every update overwrites the one before it, on a line that
grows until the epoch ends; or every update is a line, as Keras 3 and Keras before 2.6 print it
without a terminal. ``the run`` is everything that reading a file does: epochs, and a search for
events and step log records. ``a regex`` is the minimum: a loop that matches one expression per line.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable

from stallscope.parsers.base import Parser
from stallscope.parsers.formats.keras_output import KerasOutputParser
from stallscope.parsers.launcher_output import output_by_rank, rank_lines
from stallscope.parsers.runs.reading import Reading

_LAUNCHERS: dict[str, bytes] = {
    "horovodrun over Gloo": b"[%d]<stdout>:",
    "Open MPI 4, with times": b"Sat Nov 21 02:28:01 2026[1,%d]<stdout>:",
    "Open MPI 5": b"[1,%d]<stdout>: ",
    "MPICH": b"[%d] ",
    "torchrun": b"[default%d]:",
    "srun": b"%2d: ",
}
_LOGGED = b"2026-11-21 02:28:01,123 - STDOUT - INFO - [1,%d]<stdout>:"
_OWN = b"train.py: step %d of %d, loss 2.2800, 829 samples, learning rate 0.001\n"
_BAR_AS_LINES = b"%d/%d [=====>....................] - ETA: 3s - loss: 2.2800\n"
_BAR_OF_KERAS_3 = (
    "\x1b[1m%d/%d\x1b[0m \x1b[32m━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m "
    "31ms/step - loss: 2.2800\n"
).encode()
_BAR = (
    b"\b" * 82
    + b"\r %d/%d [=====>........................] - ETA: 3s - loss: 2.2800 - accuracy: 0.1000"
)
#: Kinds of output: name, the launcher's label before a line, and the line.
KINDS = (
    *((launcher, label, _OWN) for launcher, label in _LAUNCHERS.items()),
    ("horovodrun, bars", b"[%d]<stdout>:", _BAR),
    ("Open MPI 4, bars", b"[1,%d]<stdout>:", _BAR),
    ("Open MPI 4, with times, bars", b"Sat Nov 21 02:28:01 2026[1,%d]<stdout>:", _BAR),
    ("horovodrun, bars as lines", b"[%d]<stdout>:", _BAR_AS_LINES),
    ("horovodrun, bars of Keras 3", b"[%d]<stdout>:", _BAR_OF_KERAS_3),
    ("MPICH, bars as lines", b"[%d] ", _BAR_AS_LINES),
    ("a logger around Open MPI 4", _LOGGED, _OWN),
    ("a logger, bars as lines", _LOGGED, _BAR_AS_LINES),
    ("no launcher", b"", _OWN),
    ("no launcher, bars", b"", _BAR),
    ("no launcher, bars as lines", b"", _BAR_AS_LINES),
)
_ONE_REGEX = re.compile(rb"\[(?:\d+,)?(\d+)\]<(\w+)>:.*Epoch (\d+)/(\d+)")
_STEPS = 125


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=16)
    options = parser.parse_args()
    print("| launcher | splitlines | a regex | taken apart | as lines | Keras's epochs | the run |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for launcher, label, line in KINDS:
        data = printed(label, line, options.megabytes * 1_000_000, options.ranks)
        bare = seconds(data.splitlines)
        cells = [f"{len(data) / bare / 1e6:.0f} MB/s"]
        for work in (_one_regex, _apart, _lines, epochs, whole):
            took = seconds(lambda work=work, data=data: work(data))
            cells.append(f"{len(data) / took / 1e6:.0f} MB/s, {took / bare:.0f} ×")
        print(f"| {launcher} | {' | '.join(cells)} |")


def printed(label: bytes, line: bytes, size: int, ranks: int) -> bytes:
    """Make about so many bytes of all ranks' output."""
    labels = [label % rank if label else label for rank in range(ranks)]
    epoch = [prefix + b"Epoch 1/1\n" for prefix in labels]
    for step in range(_STEPS):
        update = line % (step, _STEPS)
        epoch += [prefix + update for prefix in labels]
    last = b"\r%d/%d [==============================] - 17s 195ms/step - loss: 1.9146\n"
    epoch += [prefix + last % (_STEPS, _STEPS) for prefix in labels]
    whole = b"".join(epoch)
    return whole * max(size // len(whole), 1)


def _one_regex(data: bytes) -> None:
    for line in data.split(b"\n"):
        _ONE_REGEX.match(line)


def _apart(data: bytes) -> None:
    output_by_rank(data)


def _lines(data: bytes) -> None:
    for _ in rank_lines(data):
        pass


def epochs(data: bytes) -> None:
    KerasOutputParser().parse("printed", data)


def whole(data: bytes, forced: Parser | None = None) -> None:
    """Read a file in memory as ``stallscope.parsers.read`` does."""
    reading = Reading(forced)
    reading.add_file("printed", "/logs/printed", data)
    reading.runs("/logs", reading.records_logs())


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the faster of two runs."""
    times = []
    for _ in range(2):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


if __name__ == "__main__":
    main()
