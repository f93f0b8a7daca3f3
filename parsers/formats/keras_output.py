"""The output of Keras while it fits: one line per epoch, with the epoch's time to the second.

    Epoch 3/5
    78/78 [==============================] - 17s 195ms/step - loss: 1.91 - val_loss: 2.01     verbose=1
    78/78 ━━━━━━━━━━━━━━━━━━━━ 17s 195ms/step - loss: 1.91 - val_loss: 2.01        verbose=1, Keras 3
    78/78 - 17s - loss: 1.91 - 17s/epoch - 218ms/step                                         verbose=2
    78/78 - 17s - 218ms/step - loss: 1.91                                          verbose=2, Keras 3
     - 17s - loss: 1.91                                              verbose=2 before TensorFlow 2.0

Updates of a bar in progress end in an ETA, and are overwritten. The first line is printed only for
several epochs (from TensorFlow 2.2 on). ``evaluate`` prints the same bar, which does not count as an
epoch. If no epoch is announced, bars with as many batches as the first one count.

The times include validation, and are rounded. With verbose=1 ``ms/step`` excludes the first step, which
traces; with verbose=2 it is the epoch's time divided by its steps, and more precise than the seconds
for few steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import ClassVar

from stallscope.errors import UnreadableError
from stallscope.run import FROM_LABELS, Problem

from ..base import Parsed, Parser
from ..epochs_only import (
    LATEST_NS,
    Epoch,
    clock_facts,
    epochs_log,
    in_one_file,
    rounded_to,
    with_epochs,
)
from ..rank_names import rank_in
from .keras_epoch_lines import KerasOutput, PrintedEpoch, has_epochs, outputs_by_rank

KNOWN_FROM = "what Keras printed"

# The clocks of timestamped lines have whole seconds.
_STAMP_NS = 1_500_000_000
_NOT_ANNOUNCED = (
    "bars that no line 'Epoch 1/1' announces are taken for epochs; evaluate prints the same"
)


class KerasOutputParser(Parser):
    name: ClassVar[str] = "keras-output"
    title: ClassVar[str] = "what Keras prints while it fits"
    suffix: ClassVar[str] = ".txt"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        return has_epochs(head)

    def parse(self, path: str, data: bytes) -> Parsed:
        outputs, ranks = outputs_by_rank(data)
        if not outputs:
            raise UnreadableError(
                f"{path}: this looks like what Keras prints, and no epoch has ended in it"
            )
        logs, epochs = zip(*_logs(path, outputs, ranks), strict=True)
        return in_one_file(with_epochs(logs, epochs), len(data))


def _logs(
    path: str, outputs: dict[int | None, KerasOutput], ranks: Iterable[int]
) -> Iterator[tuple[Parsed, list[Epoch]]]:
    """Yield a log without epochs for each fit of each rank, and its epochs."""
    timed = all(_timestamps_agree(output.epochs) for output in outputs.values())
    known = max(ranks, default=-1) + 1
    begins = {rank: _begins(output.epochs, timed) for rank, output in outputs.items()}
    first = min(starts[0] for starts in begins.values())
    for rank, output in outputs.items():
        problems = [] if output.announces else [Problem(path, _NOT_ANNOUNCED)]
        truncated = output.truncated()
        if truncated is not None:
            whose = f"rank {rank}: " if len(outputs) > 1 else ""
            problems.append(Problem(path, whose + truncated))
        rows = zip(output.epochs, begins[rank], strict=True)
        for fit, fit_rows in groupby(rows, key=lambda row: row[0].fit):
            epochs = [(epoch, begin - first) for epoch, begin in fit_rows]
            facts = _facts([epoch for epoch, _ in epochs], timed, first)
            if known > 1:
                facts |= {"size": known, "size_from": FROM_LABELS}
            log = epochs_log(
                path,
                rank=(rank_in(path)[0] or 0) if rank is None else rank,
                part=fit,
                facts=facts,
                ended=_all_there(epochs[-1][0]),
                problems=problems,
            )
            yield log, _rows(path, epochs)
            problems = []


def _facts(epochs: Sequence[PrintedEpoch], timed: bool, first: int) -> dict[str, object]:
    half = max(epoch.times.half for epoch in epochs)
    facts: dict[str, object] = {
        "framework": "keras",
        "known_from": KNOWN_FROM,
        "precision": f"epochs, to {rounded_to(2 * half)}",
        "epoch_precision_ms": half,
        "first_epoch": epochs[0].epoch,
        "epoch_base": 1,
        "validation_in_epochs": _validated(epochs),
    } | clock_facts(epochs[0].timestamp if timed else None, first)
    counts = {epoch.count for epoch in epochs}
    if len(counts) == 1 and epochs[0].count is not None:
        of = "samples" if epochs[0].of_samples else "steps"
        facts[f"{of}_per_epoch"] = epochs[0].count
    return facts | _step_facts(epochs[1:] or epochs)


def _validated(epochs: Sequence[PrintedEpoch]) -> bool | None:
    """Whether the epochs' times include a validation; None if some do."""
    values = {epoch.validated for epoch in epochs}
    return values.pop() if len(values) == 1 else None


def _step_facts(epochs: Sequence[PrintedEpoch]) -> dict[str, object]:
    """Return the mean over epochs of the printed time per step."""
    timed = [
        (epoch.times.step_ms, epoch.times.step_half, epoch.count)
        for epoch in epochs
        if epoch.times.step_ms is not None and epoch.count
    ]
    if not timed:
        return {}
    steps = sum(count for _, _, count in timed)
    return {
        "step_ms": sum(ms * count for ms, _, count in timed) / steps,
        "step_precision_ms": max(half for _, half, _ in timed),
    }


def _rows(path: str, epochs: Sequence[tuple[PrintedEpoch, int]]) -> list[Epoch]:
    rows = [Epoch(epoch.epoch, begin, begin + _ns(epoch)) for epoch, begin in epochs]
    if max(row.end for row in rows) > LATEST_NS:
        raise UnreadableError(f"{path}: these epochs take a century: not what Keras prints")
    return rows


def _begins(epochs: Sequence[PrintedEpoch], timed: bool) -> list[int]:
    """Return the starts of epochs: the timestamps minus the durations, or else one after another."""
    begins, end = [], 0
    for epoch in epochs:
        if timed and epoch.timestamp is not None:
            begins.append(epoch.timestamp.ns - _ns(epoch))
        else:
            begins.append(end)
            end += _ns(epoch)
    return begins


def _timestamps_agree(epochs: Sequence[PrintedEpoch]) -> bool:
    """Whether every epoch has a timestamp, and its duration fits between it and the one before.

    Buffered output gets the time at which it was read, and clocks are set.
    """
    stamps = [epoch.timestamp for epoch in epochs]
    if None in stamps or len({timestamp.zone_known for timestamp in stamps if timestamp}) > 1:
        return False
    ends = [timestamp.ns for timestamp in stamps if timestamp]
    return all(
        end - before > _ns(epoch) - epoch.times.half * 1e6 - _STAMP_NS
        for before, end, epoch in zip(ends, ends[1:], epochs[1:], strict=False)
    )


def _all_there(last: PrintedEpoch) -> bool:
    """Whether the last planned epoch has ended; early stopping looks like a kill."""
    return last.of is None or last.epoch + 1 == last.of


def _ns(epoch: PrintedEpoch) -> int:
    return round(epoch.times.ms * 1e6)
