"""The tables on links between hosts, the network alone, and loaders: in training and alone."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.gains.baseline import InputRates, loader_rate
from stallscope.analysis.gains.input_probe import InputProbe
from stallscope.analysis.network.communication import inside_collectives
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import capitalised, counted, listed
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Cells,
    amount,
    percent,
    rate,
    rate_between,
    share,
    significant,
)
from stallscope.run import InputStage
from stallscope.text import machine_words
from stallscope.text.figure_words import bytes_in_words
from stallscope.text.gain_words import pace_sentence

from ..document import NOTHING, Table

_MOST_LINKS = 10
_LINKS_NOTE = (
    "What the kernel counted of the ranks' own connections: the rate while there was something to send, "
    "medians over time. A late rank acknowledges late, which lowers rates to it; a slow link has long "
    "round trips as well."
)

_COLLECTIVES_NOTE = (
    "How long ranks wait for collectives, communication included (traces: how long NCCL's kernels run): "
    "means over the ranks of all groups of this name. A rank with little time comes late, and the "
    "others wait for it."
)

_ENOUGH = {
    True: "Alone it is fast enough: during training something takes CPU cores, disk or memory from it",
    False: "Alone it is too slow already",
    None: "Its interval is too wide to tell whether it is fast enough alone",
}


def network_tables(analysis: Analysis) -> list[Table]:
    """Return the tables that are known."""
    tables = (
        *(collectives_table, links_table, network_check_table),
        *(pairs_table, sweep_table),
    )
    return [table for table in (make(analysis) for make in tables) if table is not None]


def collectives_table(analysis: Analysis) -> Table | None:
    """Return the time inside collectives by kind and process group; None if it was not recorded."""
    collectives = inside_collectives(analysis.run)
    if not collectives:
        return None
    cells = Cells.for_all(collective.ms for collective in collectives)
    return Table.of(
        "Inside collectives",
        {
            "Collective": [collective.kind.replace("_", "-") for collective in collectives],
            "Group": [collective.group for collective in collectives],
            "Ranks": [f"{collective.ranks:,}" for collective in collectives],
            "Waits per step": [significant(collective.waits) for collective in collectives],
            f"Per step, {cells.unit}": [
                cells.mean(collective.ms, None) for collective in collectives
            ],
            f"Least, {cells.unit}": [
                f"{cells.mean(collective.least_ms, None)} (rank {collective.least_rank})"
                for collective in collectives
            ],
            f"Most, {cells.unit}": [
                f"{cells.mean(collective.most_ms, None)} (rank {collective.most_rank})"
                for collective in collectives
            ],
            "Last to arrive": [
                NOTHING
                if collective.last_share is None
                else f"rank {collective.last_rank}, {percent(collective.last_share)}"
                for collective in collectives
            ],
        },
        words=frozenset({0, 1}),
        note=_COLLECTIVES_NOTE,
    )


def links_table(analysis: Analysis) -> Table | None:
    """Return the table of links between hosts, the slowest first; None if they were not recorded."""
    links = sorted(analysis.links, key=lambda link: link.mbit_s[1])
    if not links:
        return None
    slow = set(analysis.bottleneck.links)
    return Table.of(
        "Links between hosts",
        {
            "From": [f"{link.sender} (rank {link.rank})" for link in links],
            "To": [link.receiver for link in links],
            "Rate, Mbit/s": [significant(link.mbit_s[1]) for link in links],
            "Round trip, ms": [significant(link.round_trip_ms[1]) for link in links],
            "Sent again": [percent(link.retransmitted) for link in links],
            "Sent, MB": [significant(link.sent_mb) for link in links],
        },
        words=frozenset({0, 1}),
        emphasised=frozenset(at for at, link in enumerate(links) if link in slow),
        note=_LINKS_NOTE,
        most={"md": _MOST_LINKS},
    )


def network_check_table(analysis: Analysis) -> Table | None:
    """Return the gradients' time on the network and its parts; None if unknown."""
    use = analysis.network_use
    if use is None or use.gradients_ms is None:
        return None
    parts = (
        {} if use.parts is None else {name: mean for name, mean in vars(use.parts).items() if mean}
    )
    cells = Cells.for_all(
        [use.gradients_ms.value, *([use.exposed_ms.value] if use.exposed_ms else [])]
    )
    rows = [("All gradients of a step", use.gradients_ms, "reduced as the run does it")]
    rows += [(f"– {name}", mean, machine_words.PARTS[name]) for name, mean in parts.items()]
    if use.exposed_ms is not None and not use.differs:
        rows.append(
            (
                "Exposed in this run",
                use.exposed_ms,
                "the wait of a step after the last rank is ready",
            )
        )
    return Table.of(
        "The network while nothing trains",
        {
            "What": [name for name, _, _ in rows],
            cells.unit: [cells.mean(mean.value, mean.ci95) for _, mean, _ in rows],
            "": [text for _, _, text in rows],
        },
        words=frozenset({0, 2}),
        note=machine_words.measured(use),
    )


def sweep_table(analysis: Analysis) -> Table | None:
    """Return the time of one message of each size; None if none was measured."""
    use = analysis.network_use
    if use is None or not use.sweep:
        return None
    return Table.of(
        "One message of each size",
        {
            "Size": [bytes_in_words(message.bytes) for message in use.sweep],
            "Takes": [amount(message.ms.value, "ms", message.ms.ci95) for message in use.sweep],
            "Bus bandwidth, GB/s": [significant(message.bus_bandwidth) for message in use.sweep],
        },
        words=frozenset({0}),
        note="The median of allreduces over all ranks while nothing trains.",
    )


def pairs_table(analysis: Analysis) -> Table | None:
    """Return the rates between pairs of hosts, the slowest first; None if none was measured."""
    use = analysis.network_use
    if use is None or not use.pairs:
        return None
    return Table.of(
        "Pairs of hosts while nothing trains",
        {
            "Hosts": [" and ".join(pair.hosts) for pair in use.pairs],
            "Rate each way, Mbit/s": [significant(pair.mbit_s.value) for pair in use.pairs],
            "A few bytes": [
                NOTHING if pair.small_ms is None else amount(pair.small_ms.value, "ms")
                for pair in use.pairs
            ],
        },
        words=frozenset({0}),
        emphasised=frozenset(at for at, pair in enumerate(use.pairs) if pair.is_slow),
        note="Both send at once. Marked are pairs with less than half of the faster pairs' rate.",
        most={"md": _MOST_LINKS},
    )


# -- The table on loaders during training ----------------------------------------------------------


def loaders_table(analysis: Analysis) -> Table | None:
    """Return the figures of the ranks' DataLoaders during training; None without any."""
    loaders = analysis.run.loaders
    if not loaders:
        return None
    batches = Cells.for_all([loader.made_ms for loader in loaders])
    waits = Cells.for_all([loader.waited_ms for loader in loaders])
    missing = dict.fromkeys(loader.reason for loader in loaders if loader.reason)
    return Table.of(
        "Loaders during training",
        {
            "Rank": [str(loader.rank) for loader in loaders],
            "Workers": [str(loader.workers) for loader in loaders],
            "Busy": [share(loader.busy_share) for loader in loaders],
            f"Batch, {batches.unit}": [batches.plain(loader.made_ms) for loader in loaders],
            "Slowest in 100": [batches.plain(loader.p99_ms) for loader in loaders],
            "Collating": [share(loader.share_of_making(loader.collate_ms)) for loader in loaders],
            "On a core": [share(loader.share_of_making(loader.cpu_ms)) for loader in loaders],
            "None ready": [share(loader.empty) for loader in loaders],
            f"Wait, {waits.unit}": [waits.plain(loader.waited_ms) for loader in loaders],
            "Passing": [waits.plain(loader.passed_ms) for loader in loaders],
            "Behind others": [waits.plain(loader.blocked_ms) for loader in loaders],
        },
        words=frozenset(),
        note="How busy workers are; how long one takes for a batch, and which part is collating and "
        "time on a CPU core; in how many steps no batch is ready, and how long training waits per step: "
        "for passing a ready batch on, and while later batches are ready."
        f"{''.join(f' {capitalised(reason)}.' for reason in missing)}",
        most={"md": _MOST_LINKS},
    )


# -- The tables on a loader that ran alone: its rate, the training's rates, and its stages --------


def probe_table(analysis: Analysis) -> Table | None:
    """Return the three paces that an input probe measured; None without one."""
    probe = analysis.input_probe
    if probe is None:
        return None
    slowest, several = probe.slowest, len(probe.ranks) > 1
    rows = [("Steps without input stalls", probe.probed_ms), ("Real steps", probe.real_ms)]
    if slowest is not None and slowest.loader_ms is not None:
        whose = f" (rank {slowest.rank}, the slowest)" if several else ""
        rows.insert(0, (f"Loader alone{whose}", slowest.loader_ms))
    cells = Cells.for_all([mean.value for _, mean in rows])
    return Table(
        "Measured in this run: three paces of input",
        ("Pace", f"{cells.unit} per step", "Samples per second"),
        tuple(
            (title, cells.mean(mean.value, mean.ci95), rate(_per_second(probe, mean)))
            for title, mean in rows
        ),
        note=f"{counted(probe.steps, 'step')} did not wait for input, because their batches had been "
        f"fetched ahead. {pace_sentence(probe)}",
    )


def _per_second(probe: InputProbe, step_ms: Mean) -> float | None:
    known = probe.samples is not None and step_ms.value > 0
    return probe.samples * 1e3 / step_ms.value if known and probe.samples is not None else None


def rates_table(analysis: Analysis) -> Table | None:
    """Return the three rates of one rank's input; None if no loader was run alone."""
    rates = analysis.input_rates
    if rates is None:
        return None
    title = f"Loader alone (rank {rates.slowest.rank}, the slowest)"
    rows = (
        (title, rate(None if rates.alone is None else rates.alone.value), _interval(rates)),
        ("Training on synthetic data", rate(rates.synthetic), NOTHING),
        ("Training on real data", rate(rates.real), NOTHING),
    )
    return Table(
        "Where input time goes: three rates",
        ("Per rank", "Rate", "95% interval"),
        rows,
        note=f"Of one rank. {_ENOUGH[rates.enough]}. {_measured_on(analysis, rates)}",
    )


def stages_table(analysis: Analysis) -> Table | None:
    """Return the stages of the slowest loader; None if it has none."""
    rates = analysis.input_rates
    if rates is None or not rates.slowest.stages:
        return None
    slowest = rates.slowest
    cells = Cells.for_all([slowest.ms])
    rows = [_stage_row(stage, cells, slowest.ms) for stage in slowest.stages]
    missing = f" {capitalised(slowest.no_stages)}." if slowest.no_stages else ""
    return Table(
        "The loader's stages",
        ("Stage", "What it is", f"{cells.unit} per batch", "Share"),
        tuple(rows),
        words=frozenset({0, 1}),
        note=f"Rank {slowest.rank}: the time that each adds to a batch, without training.{missing}",
    )


def trials_table(analysis: Analysis) -> Table | None:
    """Return the settings of the slowest loader that were tried; None if none were."""
    rates = analysis.input_rates
    if rates is None or not rates.slowest.trials:
        return None
    trials = rates.slowest.trials
    cells = Cells.for_all([trial.ms for trial in trials])
    keeps_up = "The marked one is the smallest that keeps up with what a rank needs."
    return Table.of(
        "Settings of the loader",
        {
            "Workers": [str(trial.workers) for trial in trials],
            "Prefetch": [str(trial.prefetch) for trial in trials],
            f"{cells.unit} per batch": [cells.mean(trial.ms, trial.ci95_ms) for trial in trials],
        },
        words=frozenset(),
        emphasised=frozenset(at for at, trial in enumerate(trials) if trial == rates.proposed),
        note=f"Rank {rates.slowest.rank}: the loader alone with other settings."
        f"{f' {keeps_up}' if rates.proposed else ''}",
    )


def _stage_row(stage: InputStage, cells: Cells, whole: float | None) -> tuple[str, ...]:
    part = percent(stage.ms / whole) if whole else NOTHING
    return (stage.kind, stage.name, cells.mean(stage.ms, stage.ci95_ms), part)


def _interval(rates: InputRates) -> str:
    alone = loader_rate(rates.slowest)
    if alone is None or alone.ci95 is None:
        return NOT_MEASURED if alone is None else NOTHING
    return rate_between(*alone.ci95)


def _measured_on(analysis: Analysis, rates: InputRates) -> str:
    batches = counted(rates.slowest.batches, "batch", "batches")
    on = listed("rank", [rank.rank for rank in rates.ranks])
    together = "at the same time" if rates.at_once else "not all ranks at the same time"
    several = f", {together}" if analysis.run.size > 1 else ""
    return f"measure_input ran on {on}{several}; {batches} after the warm-up."
