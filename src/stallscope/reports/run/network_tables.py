"""The tables on the network: links between hosts, and its performance without training."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.formatting.numbers import amount, percent, significant
from stallscope.text import network_check
from stallscope.text.cells import Cells
from stallscope.text.figures import bytes_in_words

from ..document import NOTHING, Table

_MOST_LINKS = 10
_LINKS_NOTE = (
    "What the kernel counted of the ranks' own connections: the rate while there was something to send, "
    "medians over time. A late rank acknowledges late, which lowers rates to it; a slow link has long "
    "round trips as well."
)


def network_tables(analysis: Analysis) -> list[Table]:
    """Return the tables that are known."""
    tables = (links_table, network_check_table, pairs_table, sweep_table)
    return [table for table in (make(analysis) for make in tables) if table is not None]


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
    rows += [(f"– {name}", mean, network_check.PARTS[name]) for name, mean in parts.items()]
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
        note=network_check.measured(use),
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
