"""Find what makes a device wait for its host: values read in each step, and memory that is full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.arrays.blocks import NULL
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.lists import clipped, counted, ranks_in_words

from ..gains.what_if import Advice
from .finding import Finding, Records

# Once in a few steps, as for a progress bar, is no loss.
_OFTEN_PER_STEP = 0.5
_MOST_LINES = 3
# With fewer stretches of steps a mean has no interval worth the name.
_FEWEST_SPANS = 4


def host_waits_for_device(records: Records) -> Iterator[Finding]:
    """Find lines at which the host waits for the device in most steps."""
    often = {
        rank: fact
        for rank, fact in _facts(records, "host_syncs").items()
        if fact.get("per_step", 0) >= _OFTEN_PER_STEP
    }
    if not often:
        return
    worst = max(often, key=lambda rank: often[rank]["per_step"])
    fact = often[worst]
    lines = [_line_in_words(line) for line in fact["lines"][:_MOST_LINES]]
    yield Finding(
        "host_waits_for_device",
        "info",
        "The host waits for the device within steps",
        f"{ranks_in_words([worst]).capitalize()} waited {fact['per_step']:.1f} times per step in "
        f"{counted(fact['steps'], 'step')}: {'; '.join(lines)}. After each wait the device has nothing "
        "to do until the host's next kernels arrive. How long that is was not measured.",
        (
            Advice(
                "Leave values on the device, and read them once in many steps",
                "total += loss.detach()  # and total.item() at the end of the epoch",
            ),
        ),
    )


def memory_is_full(records: Records) -> Iterator[Finding]:
    """Find ranks on which torch's allocator had to give all its memory back to go on."""
    facts = _facts(records, "allocator_retries")
    if not facts:
        return
    worst = max(facts, key=lambda rank: facts[rank]["count"])
    fact = facts[worst]
    also = f" So did {counted(len(facts) - 1, 'other rank')}." if len(facts) > 1 else ""
    yield Finding(
        "memory_is_full",
        "warning",
        "The accelerator's memory is full",
        f"{ranks_in_words([worst]).capitalize()} found no memory {counted(fact['count'], 'time')}, "
        "waited for the device, gave back all memory that it kept, and asked again. It kept up to "
        f"{fact['kept_bytes'] / 1e9:.1f} GB and used up to {fact['used_bytes'] / 1e9:.1f} GB at a time. "
        f"{_cost_in_words(_cost_of_retries(records, worst, fact['spans']))}{also}",
        (
            Advice(
                "Let memory be kept in pieces that fit any size",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                unless="If it uses all that it keeps, a smaller batch is the only way.",
            ),
        ),
    )


def _facts(records: Records, name: str) -> dict[int, Mapping[str, Any]]:
    """Return a fact of the ranks that have it."""
    facts = {log.rank: log.facts.get(name) for log in records.last_log.values()}
    return {rank: fact for rank, fact in facts.items() if isinstance(fact, dict)}


def _line_in_words(line: Mapping[str, Any]) -> str:
    file, number, function = line["at"]
    name = PurePosixPath(file.replace("\\", "/")).name
    inside = f" in {function}" if function else ""
    return f"{clipped(f'{name}:{number}{inside}')} ({line['per_step']:.1f} per step)"


def _cost_of_retries(records: Records, rank: int, spans: list[list[int]]) -> Mean | None:
    """Return the milliseconds that a retry adds, against steps without; None where nothing can tell.

    Steps between two looks of the recorder are compared as a whole: which of them waited is unknown.
    """
    reductions = records.reductions
    if rank not in reductions.ranks:
        return None
    at = records.completions_of(reductions.ranks.index(rank)).astype(np.float64)
    at[at == NULL] = np.nan
    took_ms, steps = np.diff(at) / 1e6, np.asarray(reductions.steps)[1:]
    inside = np.zeros(len(steps), bool)
    for first, last, _ in spans:
        inside |= _within(steps, first, last)
    if not np.isfinite(took_ms[~inside]).any():
        return None
    usual = float(np.nanmean(took_ms[~inside]))
    added = [
        float(np.nansum(took_ms[_within(steps, first, last)] - usual)) / count
        for first, last, count in spans
    ]
    return mean_with_interval(added, _FEWEST_SPANS)


def _within(steps: npt.NDArray[np.int64], first: int, last: int) -> npt.NDArray[np.bool_]:
    return (steps >= first) & (steps < last)


def _cost_in_words(cost: Mean | None) -> str:
    if cost is None or cost.ci95 is None or cost.ci95[0] <= 0:
        return "What a retry costs cannot be told from these steps."
    low, high = cost.ci95
    return f"A retry took {cost.value:.1f} ms ({low:.1f} to {high:.1f})."
