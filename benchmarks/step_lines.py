"""Time the reading of printed step lines, against a loop in Python that matches one expression per line.

    python benchmarks/step_lines.py [--lines 1000000]

The lines of known trainers are recognised. Those of others are read by their words, and the clock has to
confirm them. Reading is all that a report does with the file: labels, messages, events, batch sizes and
step times. The loop only takes the numbers out of the lines.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from statistics import median

from figures import Figure, times_as_much
from paired import over_rounds

from stallscope.parsers.runs.reading import Reading

_START_S = 1_790_000_000
_STEPS_OF_EPOCH = 5_000
#: CPU seconds hardly differ between rounds: more of them do not narrow the intervals.
_ROUNDS = 2
_LINES, _QUICK_LINES = 1_000_000, 50_000
#: Kinds of lines: a form for a line, and the expression of its numbers.
KINDS = {
    "torchvision": (
        "Epoch: [{epoch}]  [{at:4d}/5000]  eta: {left}  lr: {learning_rate:.6f}  "
        "loss: {loss:.4f} ({mean:.4f})  "
        "time: {took:.4f}  data: 0.0021  max mem: 5566",
        r"Epoch: \[(\d+)\]  \[ *(\d+)/.*? time: ([\d.]+)  data: ([\d.]+)",
    ),
    "mmengine": (
        "{date} - mmengine - INFO - Epoch(train)  [{epoch}][{at:4d}/5000]  lr: {learning_rate:.4e}  "
        "eta: {left}  time: {took:.4f}  data_time: 0.0054  memory: 3820  loss: {loss:.4f}",
        r"Epoch\(train\)  \[(\d+)\]\[ *(\d+)/.*? time: ([\d.]+)  data_time: ([\d.]+)",
    ),
    "Megatron-LM": (
        " [{date}] iteration {step:8d}/ 9999999 | consumed samples: {samples:12d} | elapsed time per "
        "iteration (ms): {ms:.1f} | learning rate: {learning_rate:.6E} | global batch size:    32 | "
        "lm loss: {loss:.6E} | grad norm: {mean:.3f} |",
        r"iteration +(\d+)/.*?consumed samples: +(\d+).*?\(ms\): ([\d.]+)",
    ),
    "an unknown trainer": (
        "{date} INFO trainer: step {step} of 9999999: loss {loss:.3f}, step_time {took:.3f}s, "
        "data_wait 0.011s, tokens/s {rate:.0f}",
        r"step (\d+) of.*?step_time ([\d.]+)s, data_wait ([\d.]+)s, tokens/s (\d+)",
    ),
    # No two lines have all digits at the same places.
    "an unknown trainer, numbers of any length": (
        "{date} INFO trainer: step {step} of 9999999: loss {loss}, step_time {took}s, acc {mean}, "
        "grad_norm {spread}, lr {learning_rate}, tokens/s {rate}",
        r"step (\d+) of.*?step_time ([\d.]+)s.*?tokens/s ([\d.]+)",
    ),
    "lines of JSON": (
        '{{"step": {step}, "loss": {loss}, "step_time": {took:.4f}, "time": "{date}"}}',
        r'"step": (\d+).*?"step_time": ([\d.]+)',
    ),
}


def figures(quick: bool) -> Iterator[Figure]:
    for kind in KINDS:
        data = printed(kind, _QUICK_LINES if quick else _LINES)
        ours, loop = times(kind, data)
        name = f"step lines of {kind}, {len(data) / 1e6:.0f} MB: time"
        ratio = over_rounds([read_s / loop_s for read_s, loop_s in zip(ours, loop, strict=True)])
        loop_s = median(loop)
        yield times_as_much(name, median(ours), "s", "a loop with re", loop_s, ratio, most=1.0)


def times(kind: str, data: bytes) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of reading lines, and of the loop, in rounds that alternate."""
    expression = re.compile(KINDS[kind][1])
    ours, loop = [], []
    for _ in range(_ROUNDS):
        loop.append(_seconds(lambda: _loop(data, expression)))
        ours.append(_seconds(lambda: _read(data)))
    return ours, loop


def printed(kind: str, lines: int) -> bytes:
    """Make lines with timestamps that agree with their step times."""
    form, _ = KINDS[kind]
    noise, now = random.Random(1), float(_START_S)
    texts = []
    for step in range(lines):
        took = 0.2 + 0.02 * noise.random()
        now += took
        loss = 12 * (1 - step / lines) + noise.random()
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
        texts.append(
            form.format(
                step=step + 1,
                epoch=step // _STEPS_OF_EPOCH + 1,
                at=step % _STEPS_OF_EPOCH + 1,
                samples=32 * (step + 1),
                took=took,
                loss=loss,
                mean=1.5 * loss,
                spread=10 ** noise.uniform(-3, 3),
                learning_rate=0.1 * (1 - step / lines),
                left=timedelta(seconds=int((lines - step) * took)),
                ms=1e3 * took,
                rate=8192 / took,
                date=f"{date},{int(now % 1 * 1000):03d}",
            )
        )
    return "\n".join(texts).encode() + b"\n"


def _read(data: bytes) -> None:
    reading = Reading(None)
    reading.add_file("printed", "/logs/printed", data)
    (run,) = reading.runs("/logs", reading.records_logs())
    assert run.intervals.num_rows, "no step was read"


def _loop(data: bytes, expression: re.Pattern[str]) -> None:
    rows = []
    for line in data.decode().splitlines():
        match = expression.search(line)
        if match is not None:
            rows.append([float(number) for number in match.groups()])
    assert rows, "no line matched"


def _seconds(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=_LINES)
    lines = parser.parse_args().lines
    for kind in KINDS:
        data = printed(kind, lines)
        ours, loop = map(median, times(kind, data))
        print(
            f"{kind}: {len(data) / 1e6:.0f} MB, {len(data) / ours / 1e6:.0f} MB/s, "
            f"{ours / loop:.2f} × the loop"
        )


if __name__ == "__main__":
    main()
