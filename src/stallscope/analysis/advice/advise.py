"""Give advice on a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools
from stallscope.formatting.lists import capitalised, counted, listed, ranks_in_words
from stallscope.formatting.numbers import amount
from stallscope.run import LoaderTrial, Log, Run

from ..gains.attribution import Attribution
from ..gains.what_if import Advice, Bottleneck, Reason
from ..ledger.change_points import ChangePoint
from ..ledger.ledger import Ledger, mean_over_ranks
from ..network.communication import Communication
from ..network.network_check import NetworkUse
from ..reasons import with_hidden_loader
from ..setup import CpuLoad, Setup, crowded_cores, number
from .communication_advice import for_allreduce
from .input_advice import as_tried, for_copies, for_late_input, for_slower_compute
from .loader_reasons import FEWEST_BATCHES, OFF_CPU, LoaderEvidence
from .training_advice import for_imbalance

_MOST_REASONS = 3
# A host's input explains a change of the step if it grew by this share of it, and so did its ranks'.
_MOST_OF_A_CHANGE = 0.5
# Copies to the device explain input from this share of it on.
_MOST_OF_INPUT = 0.5
_FEWEST_COPIES = 4
# Fewer values of a counter, one per second, show no usual use of cores.
_FEWEST_SECONDS = 5
# Fewer cores than this do not matter.
_LEAST_CORES = 0.1


def advise(
    run: Run,
    verdict: Bottleneck,
    ledger: Ledger,
    attribution: Attribution,
    communication: Communication | None = None,
    network: NetworkUse | None = None,
    longest_stage: str | None = None,
    proposed: LoaderTrial | None = None,
) -> tuple[Advice, ...]:
    """Return advice, the most certain first; nothing if there is no bottleneck.

    Args:
        run: the run.
        verdict: the run's bottleneck.
        ledger: steady steps.
        attribution: the run's stragglers.
        communication: the run's communication, if known.
        network: the speed of the network without training, if measured.
        longest_stage: the kind of the input's longest stage, if measured.
        proposed: a setting of the loader that keeps up, if one was tried.
    """
    setup = Setup.of(run)
    pieces: Iterable[Advice] = ()
    if verdict.kind == "imbalance":
        pieces = for_imbalance(run, setup, attribution.stragglers)
    elif verdict.kind == "input":
        pieces = for_late_input(setup, longest_stage, proposed)
    elif verdict.kind == "other":
        pieces = between_steps(setup)
    elif verdict.kind == "allreduce":
        pieces = for_allreduce(setup, ledger, communication, network)
    elif verdict.kind == "compute":
        crowded = crowded_cores(run) if verdict.cause == "cores" else None
        if crowded is not None:
            pieces = [for_crowded_cores(setup, crowded)]
        else:
            pieces = for_slower_compute(setup) if verdict.fault else fuller_compute(setup)
    return tuple(pieces)


def between_steps(setup: Setup) -> Iterator[Advice]:
    """Return advice on work between steps, on all ranks."""
    yield Advice(
        "Look at what runs between steps on every rank",
        detail=": callbacks, logging, checkpoints, metrics fetched in every batch",
    )
    if setup.framework == "keras" and (setup.steps_per_execution or 1) == 1:
        yield Advice(
            "Run several steps in one call, so that nothing runs on the host between them",
            "model.compile(optimizer=optimizer, loss=loss, steps_per_execution=10)",
            unless="Not if a callback must see every batch. Each recorded step is then ten steps.",
        )


def fuller_compute(setup: Setup) -> Iterator[Advice]:
    """Return advice for steps that consist of compute only."""
    halves = "" if setup.half_precision else "mixed precision, if it is not on yet, "
    yield Advice(
        f"only a larger batch, {halves}or faster devices can help",
        reason="The step consists of forward and backward passes:",
    )
    if setup.framework == "keras" and setup.gpu and not setup.half_precision:
        yield Advice(
            "Compute in 16-bit floats",
            detail="; set this before the model is built",
            line='tf.keras.mixed_precision.set_global_policy("mixed_float16")',
            unless="It gains nothing on accelerators without 16-bit units. Keep the last layer in "
            "float32.",
        )


def for_crowded_cores(setup: Setup, load: CpuLoad) -> Advice:
    """Advise fewer threads if ranks have more than their share, otherwise fewer ranks or more cores."""
    if load.threads <= load.share * len(load.ranks):
        # So many ranks have a core for each of their threads.
        most = max(1, load.cores * len(load.ranks) // load.threads)
        return Advice(
            f"Start no more than {counted(most, 'rank')} on a host with {load.cores} CPU "
            "cores, and use more or larger hosts for the rest",
            unless="Each rank already runs the fewest threads it can.",
        )
    line = {
        "keras": f"tf.config.threading.set_intra_op_parallelism_threads({load.share})",
        "torch": f"torch.set_num_threads({load.share})",
        None: f"OMP_NUM_THREADS={load.share}",
    }[setup.framework]
    return Advice(
        "Give every rank its share of the CPU cores, before anything computes",
        line,
        unless="Or start fewer ranks on a host.",
    )


# -- What a loader's own figures show -----------------------------------------------------------------


def with_loader_reasons(
    verdict: Bottleneck, run: Run, steady: Ledger, proposed: LoaderTrial | None = None
) -> Bottleneck:
    """Return a verdict on slow input with what the DataLoader's figures show, and advice on it.

    Args:
        verdict: the verdict.
        run: the run.
        steady: its steady steps.
        proposed: a setting of the loader that keeps up with training, if one was tried.
    """
    if not verdict.fault or "input" not in (verdict.kind, verdict.cause):
        return verdict
    copies = _copies(verdict, run, steady)
    if copies is not None:
        reason, advice_on_copies = copies
        return replace(verdict, why=(reason, *verdict.why), advice=(advice_on_copies,))
    named = [loader for loader in run.loaders if not verdict.ranks or loader.rank in verdict.ranks]
    slowest = max(named, key=lambda loader: loader.waited_ms or 0.0, default=None)
    if slowest is None:
        return with_hidden_loader(verdict, run)
    if slowest.batches < FEWEST_BATCHES:
        return verdict
    empty = sum(loader.empty or 0.0 for loader in named)
    own_input = _with_and_without_input_ms(steady, slowest.rank)
    loader = LoaderEvidence(slowest, Setup.of(run), *own_input, empty)
    pairs = [pair for pair in loader.reasons() if pair is not None][:_MOST_REASONS]
    if not pairs:
        return verdict
    advice = [piece for _, piece in pairs if piece is not None]
    others = list(verdict.advice)
    tried = None if proposed is None else as_tried(loader.setup, proposed)
    if tried in others:
        # A setting that was tried is better than one that is computed.
        advice = others[:1] + _without_line(advice)
    elif len(_without_line(advice)) < len(advice) or slowest.stages or slowest.without_data:
        # One line for the same call; none if it is no DataLoader, or if more workers have no data.
        others = _without_line(others)
    reasons = (*(reason for reason, _ in pairs), *verdict.why)
    return replace(verdict, why=reasons, advice=tuple(dict.fromkeys(advice + others)))


def _copies(verdict: Bottleneck, run: Run, steady: Ledger) -> tuple[Reason, Advice] | None:
    """Return that copies to the device are most of the wait for a batch, and advice; None otherwise."""
    facts = {
        rank: fact
        for rank, log in run.last_logs.items()
        if isinstance(fact := log.facts.get("device_copies"), dict) and fact.get("in_input")
    }
    named = [
        rank
        for rank, fact in facts.items()
        if fact["timed"] >= _FEWEST_COPIES and (not verdict.ranks or rank in verdict.ranks)
    ]
    if not named:
        return None
    slowest = max(named, key=lambda rank: facts[rank]["us"])
    copy_ms, (input_ms, _) = (
        facts[slowest]["us"] / 1e3,
        _with_and_without_input_ms(steady, slowest),
    )
    if copy_ms < _MOST_OF_INPUT * input_ms:
        return None
    text = (
        f"{capitalised(ranks_in_words([slowest]))}: the loader copies each batch to the device, "
        f"{amount(copy_ms, 'ms')} of the {amount(input_ms, 'ms')} of input"
    )
    reason = Reason(
        "loader_copies", f"{text}.", (slowest,), (), "copy", "ms", "", copy_ms, input_ms, None
    )
    return reason, for_copies(run.last_logs[slowest].facts)


def _without_line(advice: list[Advice]) -> list[Advice]:
    """Return the advice that does not set up a DataLoader."""
    return [piece for piece in advice if "DataLoader(" not in piece.line]


def _with_and_without_input_ms(steady: Ledger, rank: int) -> tuple[float, float]:
    """Return a rank's mean input, and its mean step without it, milliseconds."""
    if rank not in steady.ranks:
        return 0.0, 0.0
    own_input = steady.of("input", np.full(len(steady), steady.ranks.index(rank)))
    return float(own_input.mean()) / 1e6, float((steady.total - own_input).mean()) / 1e6


# -- Input that became slower during the job, for all ranks of a host ------------------------------

#: Advice where they do.
STORAGE_OF_HOSTS = Advice(
    "Look at the storage that these hosts read from, and at what else used it then",
    detail=": other jobs, a cache that is full, a mount that fell back to another server",
)


def with_slower_hosts(
    verdict: Bottleneck, run: Run, steady: Ledger, changes: Sequence[ChangePoint]
) -> Bottleneck:
    """Return a verdict on slow input with the hosts on which all input became slower at one step.

    Args:
        verdict: the verdict.
        run: the run.
        steady: its steady steps.
        changes: the changes of its step time.
    """
    slower = [change for change in changes if change.after_ms > change.before_ms]
    if not verdict.fault or "input" not in (verdict.kind, verdict.cause) or not slower:
        return verdict
    change = max(slower, key=lambda change: change.after_ms - change.before_ms)
    at = [0, *(each.step for each in changes), int(steady.steps[-1]) + 1]
    place = at.index(change.step)
    before = _between(steady, at[place - 1], change.step)
    after = _between(steady, change.step, at[place + 1])
    hosts = {log.rank: log.host for log in run.last_logs.values()}
    grown = _grown(steady, before, after, hosts, change.after_ms - change.before_ms)
    if not grown:
        return verdict
    names = sorted(grown)
    ranks = tuple(rank for rank in steady.ranks if hosts[rank] in grown)
    was, is_now = (
        float(np.mean([means[at].value for means in grown.values()])) / 1e6 for at in (0, 1)
    )
    where = (
        "All hosts"
        if len(names) == len(set(hosts.values()))
        else capitalised(listed("host", names))
    )
    elsewhere = "" if where == "All hosts" else "; on the other hosts it did not change like that"
    text = (
        f"{where}: from step {change.step} on, the input of every rank takes {amount(is_now, 'ms')} "
        f"instead of {amount(was, 'ms')}{elsewhere}{_waiting(run, ranks)}."
    )
    reason = Reason(
        "loader_slower", text, ranks, tuple(names), "input", "ms", "", is_now, was, None
    )
    return replace(verdict, why=(reason, *verdict.why), advice=(STORAGE_OF_HOSTS, *verdict.advice))


def _between(steady: Ledger, first: int, end: int) -> Bools:
    return np.asarray((steady.steps >= first) & (steady.steps < end))


def _grown(
    steady: Ledger, before: Bools, after: Bools, hosts: Mapping[int, str], by_ms: float
) -> dict[str, tuple[Mean, Mean]]:
    """Return the hosts whose ranks all wait longer for their input, with the means of a rank's input.

    Args:
        steady: steady steps.
        before, after: which of them are before the change, and after it.
        hosts: the host of each rank.
        by_ms: the change of the step.
    """
    least = _MOST_OF_A_CHANGE * by_ms * 1e6
    rank_grew = steady.take(after).rank_means["input"] - steady.take(before).rank_means["input"]
    grown = {}
    for host in sorted(set(hosts.values())):
        places = np.array([at for at, rank in enumerate(steady.ranks) if hosts.get(rank) == host])
        if not len(places) or not np.all(rank_grew[places] >= least):
            continue
        series = np.concatenate(steady.cells.by_steps(mean_over_ranks, "input", places))
        means = mean_with_interval(series[before]), mean_with_interval(series[after])
        was, is_now = (mean.ci95 for mean in means)
        if was is not None and is_now is not None and is_now[0] > was[1]:
            grown[host] = means
    return grown


def _waiting(run: Run, ranks: Sequence[int]) -> str:
    """Say whether workers wait, and do not compute, where the loaders tell."""
    times = [
        (loader.cpu_ms, loader.made_ms)
        for loader in run.loaders
        if loader.rank in ranks and loader.cpu_ms is not None and loader.made_ms
    ]
    on_cpu, whole = (sum(part) for part in zip(*times, strict=True)) if times else (1.0, 1.0)
    if on_cpu >= OFF_CPU * whole:
        return ""
    return "; their loaders wait most of the time, and compute little"


# -- Cores for faster input -----------------------------------------------------------------------


#: Advice where they are too few.
CHEAPER_BATCHES = Advice(
    "Make each batch cheaper, or use hosts with idle CPU cores",
    detail=": loaders would take cores from training",
)


def with_busy_cores(verdict: Bottleneck, run: Run, steady: Ledger) -> Bottleneck:
    """Return a verdict on slow input with the host whose CPU cores are too busy for faster input.

    A step that no longer waits for input is shorter, and its batches take as much work: loaders use more
    cores.
    """
    if not verdict.fault or "input" not in (verdict.kind, verdict.cause):
        return verdict
    by_host: dict[str, list[Log]] = {}
    for log in run.last_logs.values():
        if not verdict.ranks or log.rank in verdict.ranks:
            by_host.setdefault(log.host, []).append(log)
    short: list[tuple[float, list[Log], _Cores, float]] = []
    for host, logs in by_host.items():
        cores = _cores(run, host)
        if cores is not None:
            needed = sum(_more_cores(run, steady, log, cores) for log in logs)
            if needed > cores.idle + _LEAST_CORES:
                short.append((needed - cores.idle, logs, cores, needed))
    if not short:
        return verdict
    _, logs, cores, needed = max(short, key=lambda host: host[0])
    text = (
        f"Host {logs[0].host}: {cores.idle:.1f} of its {counted(cores.number, 'CPU core')} are idle; "
        f"without waits for input, loading would use {needed:.1f} more."
    )
    named = tuple(log.rank for log in logs), (logs[0].host,)
    reason = Reason(
        "loader_busy_cores", text, *named, "idle cores", "cores", "host_cpu", cores.idle, None, None
    )
    return replace(verdict, why=(*verdict.why, reason), advice=(*verdict.advice, CHEAPER_BATCHES))


@dataclass(frozen=True)
class _Cores:
    """A host's CPU cores, those that are idle, and those that its ranks' processes use."""

    number: int
    idle: float
    used: float


def _cores(run: Run, host: str) -> _Cores | None:
    """Average the use of a host's cores during a run; None if unknown.

    Ranks that may use only some of the host's cores do not show how busy these are.
    """
    logs = {log.path: log for log in run.last_logs.values() if log.host == host}
    counts = {(log.facts.get("cpu_count"), log.facts.get("cpus_allowed")) for log in logs.values()}
    count, allowed = counts.pop() if len(counts) == 1 else (None, None)
    cores = number(count)
    if not cores or allowed != count:
        return None
    usual = [
        (series.name, float(np.median(series.value)))
        for series in run.series
        if series.where in logs and len(series.value) >= _FEWEST_SECONDS
    ]
    busy = [value for name, value in usual if name == "host_cpu"]
    used = [value for name, value in usual if name == "process_cpu"]
    if not busy or len(used) < len(logs):
        return None
    return _Cores(cores, max(0.0, cores - max(busy)), sum(used))


def _more_cores(run: Run, steady: Ledger, log: Log, cores: _Cores) -> float:
    """Return how many more cores a rank's loader uses if nothing waits for it; 0 if unknown."""
    input_ms, rest_ms = _with_and_without_input_ms(steady, log.rank)
    if rest_ms <= 0:
        return 0.0
    figures = next((loader for loader in run.loaders if loader.rank == log.rank), None)
    if figures is not None and figures.cpu_ms is not None:
        # Without workers, making batches has cores of its own only once there are some.
        now = figures.cpu_ms / (input_ms + rest_ms) if figures.workers else 0.0
        return figures.cpu_ms / rest_ms - now
    if run.size == 1 and log.facts.get("loader_workers") == 0:
        # Without peers the process waits for nothing, and does the same work in shorter steps.
        return cores.used * input_ms / rest_ms
    return 0.0
