"""How fast what launchers print is read, against one bare ``bytes.splitlines`` over the same bytes.

    python benchmarks/parsers.py [--megabytes 40]

16 ranks print lines of their own and, at the ends of epochs, Keras's. The last row is the worst case:
bars whose every update is a line, as Keras before 2.6 has printed them into files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from stallscope.parsers.keras_output import KerasOutputParser
from stallscope.parsers.launcher_output import shown_lines
from stallscope.parsers.launchers import demultiplexed

_RANKS = 16
_LAUNCHERS: dict[str, bytes] = {
    "horovodrun over Gloo": b"[%d]<stdout>:",
    "Open MPI 4, with times": b"Sat Nov 21 02:28:01 2026[1,%d]<stdout>:",
    "Open MPI 5": b"[1,%d]<stdout>: ",
    "MPICH": b"[%d] ",
    "torchrun": b"[default%d]:",
    "srun": b"%2d: ",
}
_OWN = b"train.py: step %d of %d, loss 2.2800, 829 samples, learning rate 0.001\n"
_BAR = b"%d/%d [=====>....................] - ETA: 3s - loss: 2.2800\n"
_STEPS = 125


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=40)
    options = parser.parse_args()
    print("| launcher | splitlines | taken apart | as lines | Keras's epochs |")
    print("| --- | ---: | ---: | ---: | ---: |")
    rows = [(launcher, label, _OWN) for launcher, label in _LAUNCHERS.items()]
    rows.append(("horovodrun, bars as lines", b"[%d]<stdout>:", _BAR))
    for launcher, label, line in rows:
        data = printed(label, line, options.megabytes * 1_000_000)
        bare = _seconds(data.splitlines)
        cells = [f"{len(data) / bare / 1e6:.0f} MB/s"]
        for work in (_apart, _lines, _epochs):
            took = _seconds(lambda work=work, data=data: work(data))
            cells.append(f"{len(data) / took / 1e6:.0f} MB/s, {took / bare:.0f} ×")
        print(f"| {launcher} | {' | '.join(cells)} |")


def printed(label: bytes, line: bytes, size: int) -> bytes:
    """About so many bytes of what all ranks print."""
    epoch: list[bytes] = []
    for rank in range(_RANKS):
        epoch.append(label % rank + b"Epoch 1/1\n")
    for step in range(_STEPS):
        epoch += [label % rank + line % (step, _STEPS) for rank in range(_RANKS)]
    for rank in range(_RANKS):
        last = b"%d/%d [==============================] - 17s 195ms/step - loss: 1.9146\n"
        epoch.append(label % rank + last % (_STEPS, _STEPS))
    whole = b"".join(epoch)
    return whole * max(size // len(whole), 1)


def _apart(data: bytes) -> None:
    demultiplexed(data)


def _lines(data: bytes) -> None:
    for _ in shown_lines(data):
        pass


def _epochs(data: bytes) -> None:
    KerasOutputParser().parse("printed", data)


def _seconds(work: Callable[[], object]) -> float:
    """The faster one of two."""
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


if __name__ == "__main__":
    main()
