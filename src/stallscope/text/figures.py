"""Describe the basis of the figures: communication, clocks, and the steps that count."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.formatting.lists import counted, joined
from stallscope.formatting.numbers import amount, finite, percent, significant

_METHODS = {
    "one clock": "one for all ranks",
    "completions": "aligned by the completions of allreduces",
    "wall clocks": "the hosts' wall clocks, as a slow link makes completions of allreduces late",
    "every step": (
        "they could not be followed; the end of every allreduce is taken for the same moment on all "
        "ranks"
    ),
}
_SIZES = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))


def communication(analysis: Analysis) -> str:
    """Describe gradients, their exposed reduction and the bandwidth; empty if unknown."""
    reduction = analysis.communication
    if reduction is None:
        return ""
    parts = [
        f"{bytes_in_words(reduction.gradient_bytes)} of gradients, "
        f"{amount(reduction.exposed_ms.value, 'ms', reduction.exposed_ms.ci95)} exposed"
    ]
    if reduction.bus_bandwidth is not None:
        parts.append(
            f"effective bus bandwidth at most {significant(reduction.bus_bandwidth)} GB/s, less if "
            "backward hides a part of it"
        )
    if reduction.network_bandwidth is not None:
        parts.append(
            f"at {significant(reduction.network_bandwidth)} GB/s all of it takes "
            f"{amount(reduction.whole_ms, 'ms')}, {amount(reduction.hidden_ms, 'ms')} of it hidden"
        )
    return "; ".join(parts)


def clocks(analysis: Analysis) -> str:
    """Describe how the clocks were aligned, and how well; empty without steps."""
    alignment = analysis.clocks
    if alignment is None:
        return ""
    parts = [_METHODS.get(alignment.method, alignment.method)]
    uncertain = [finite(rank.clock_uncertainty_ms) for rank in analysis.ranks]
    if None in uncertain:
        parts.append("some could not be compared")
    elif alignment.method != "one clock":
        most = max((value or 0.0 for value in uncertain), default=0.0)
        parts.append(f"uncertain by {amount(most, 'ms')} at most")
    if alignment.skew_ms is not None:
        parts.append(f"ranks of a host complete {amount(alignment.skew_ms, 'ms')} apart")
    if finite(alignment.skew_bound_ms) is not None:
        parts.append(f"hosts no more than {amount(alignment.skew_bound_ms, 'ms')}, by causality")
    parts += [
        f"that of {_hosts_of(clock, analysis)} was set by {amount(ms, 'ms')} at step {step:,}"
        for clock, step, ms in alignment.jumps
    ]
    if alignment.late:
        parts.append(f"a timestamp came late in {percent(alignment.late)} of steps")
    if alignment.violations:
        parts.append(
            f"timestamps contradict each other in {percent(alignment.violations)} of steps"
        )
    return "; ".join(parts)


def coverage(analysis: Analysis) -> str:
    """Say how many steps are in the ledger; empty if all are, measured by every rank."""
    counts = analysis.coverage
    if not counts.partial and not counts.unused and not counts.sampled_out:
        return ""
    parts = [f"{counts.complete + counts.partial:,} of {counted(counts.steps, 'step')}"]
    if counts.sampled_out:
        parts.append(f"{counts.sampled_out:,} recorded as sums, or to tell when the next one began")
    if counts.partial:
        parts.append(f"{counts.partial:,} of them without some ranks")
    return ", ".join(parts)


def _hosts_of(clock: str, analysis: Analysis) -> str:
    """Return the hosts of a clock; its name if they are unknown."""
    logs = analysis.run.logs
    hosts = dict.fromkeys(log.host for log in logs if log.clock_domain == clock)
    return joined(list(hosts)) if hosts else clock


def bytes_in_words(number: int) -> str:
    """Write bytes in a readable unit."""
    name, length = next((size for size in reversed(_SIZES) if number >= size[1]), ("bytes", 1.0))
    return f"{significant(number / length)} {name}"
