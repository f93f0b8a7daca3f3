"""Remove host names and paths from runs, for reports that others may read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from stallscope.run import Event, Log, Problem, Run, Series

#: The replacement for a removed name.
LEFT_OUT = "…"

# Absolute paths, and URLs with their queries.
_PATH = re.compile(
    r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s'",;]+"""
    r"""|(?<![\w./])(?:~|\.{1,2})?/[^\s'",;:]+|\b[A-Za-z]:\\[^\s'",;]+|\\\\[^\s'",;]+"""
)
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-fA-F]{1,4}:){3,}[0-9a-fA-F:]+"
)
# Settings' values that identify nothing: numbers, switches, log levels, libraries.
_HARMLESS = re.compile(
    r"-?\d+(?:\.\d+)?|true|false|on|off|yes|no|none|trace|debug|info|warn(?:ing)?|error|fatal|version"
    r"|detail|ring|tree|gloo|mpi|nccl|ccl|cpu|gpu|cuda|dynamic|lo",
    re.IGNORECASE,
)
# Shorter names may be ordinary words; they are only replaced between spaces or quotes.
_SHORTEST = 4


def anonymous(run: Run) -> Run:
    """Name the run's hosts host-1, host-2 …, and remove paths; its analysis stays the same."""
    clean = cleaner(run)
    logs = tuple(_log(log, clean) for log in run.logs)
    problems = tuple(
        Problem(_file_name(one.where, run, clean), clean(one.what)) for one in run.problems
    )
    name = str(run.fact("run_name") or run.id)
    paths = {log.path for log in run.logs}
    return replace(
        run,
        source=name,
        logs=logs,
        problems=problems,
        events=tuple(_event(one, run, clean) for one in run.events),
        series=tuple(_series(one, run, paths, clean) for one in run.series),
    )


def cleaner(run: Run) -> Callable[[str], str]:
    """Return a function that removes the names of the run's hosts, and paths, from a text."""
    hosts = _aliases(run)
    known = {**hosts}
    for host, alias in hosts.items():
        # The first part of a host name also identifies it; the first part of an address is a number.
        first = host.partition(".")[0]
        if not first.isdecimal():
            known.setdefault(first, alias)
    paths = {log.path: PurePath(log.path).name for log in run.logs if "/" in log.path}
    known |= paths
    known |= {address: f"address-{at}" for at, address in enumerate(_addresses(run), start=1)}
    known |= {run.source: str(run.fact("run_name") or run.id)} if run.source else {}
    names = [name for name in sorted(known, key=len, reverse=True) if name]
    whole = re.compile("|".join(map(_whole_word, names))) if names else None

    def clean(text: str) -> str:
        named = whole.sub(lambda found: known[found[0]], text) if whole else text
        return without_paths(named)

    return clean


def without_paths(text: str) -> str:
    """Remove absolute paths, URLs and IP addresses from a text."""
    return _ADDRESS.sub(LEFT_OUT, _PATH.sub(LEFT_OUT, text))


def _aliases(run: Run) -> dict[str, str]:
    """Return aliases that sort like the host names, because the analysis depends on their order.

    Hosts that only events or series mention get aliases, too.
    """
    width = len(str(len(run.hosts)))
    own = {host: f"host-{number:0{width}d}" for number, host in enumerate(run.hosts, start=1)}
    short = {host.partition(".")[0]: alias for host, alias in own.items()}
    mentioned = {host for event in run.events for host in event.hosts}
    mentioned |= {series.node for series in run.series if series.node and series.rank is None}
    others = sorted(host for host in mentioned - own.keys() if host.partition(".")[0] not in short)
    return {
        **{host: f"other-host-{number}" for number, host in enumerate(others, start=1)},
        **{
            host: short[host.partition(".")[0]]
            for host in mentioned
            if host.partition(".")[0] in short
        },
        **own,
    }


def _addresses(run: Run) -> list[str]:
    """Return the addresses of connections between hosts, which identify links."""
    lists = [log.facts.get("connections") for log in run.logs]
    rows = [row for rows in lists if isinstance(rows, list) for row in rows]
    ends = {row.get(end) for row in rows if isinstance(row, Mapping) for end in ("local", "peer")}
    return sorted(end for end in ends if isinstance(end, str) and end)


def _whole_word(name: str) -> str:
    return (
        rf"(?<![\w.-]){re.escape(name)}(?![\w-])" if len(name) >= _SHORTEST else _standalone(name)
    )


def _standalone(name: str) -> str:
    return rf"(?<![^\s'\"(]){re.escape(name)}(?![^\s'\",.;:)])"


def _log(log: Log, clean: Callable[[str], str]) -> Log:
    facts = {name: _value(value, clean) for name, value in log.facts.items()}
    if isinstance(log.facts.get("settings"), Mapping):
        facts["settings"] = {
            str(name): value if _HARMLESS.fullmatch(str(value)) else LEFT_OUT
            for name, value in log.facts["settings"].items()
        }
    return replace(log, path=clean(PurePath(log.path).name), facts=facts)


def _event(event: Event, run: Run, clean: Callable[[str], str]) -> Event:
    return replace(
        event,
        where=_file_name(event.where, run, clean),
        what=clean(event.what),
        hosts=tuple(map(clean, event.hosts)),
    )


def _series(series: Series, run: Run, paths: Set[str], clean: Callable[[str], str]) -> Series:
    node = None if series.node is None else clean(series.node)
    # Series and their logs keep equal names.
    is_log = series.where in paths
    where = clean(PurePath(series.where).name) if is_log else _file_name(series.where, run, clean)
    return replace(series, where=where, node=node)


def _value(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: _value(own, clean) for name, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(own, clean) for own in value]
    return value


def _file_name(where: str, run: Run, clean: Callable[[str], str]) -> str:
    return clean(where if where == run.source else PurePath(where).name)
