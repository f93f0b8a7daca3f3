"""Runs without the names of hosts and paths, for reports that leave the house."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from stallscope.run import Event, Log, Problem, Run, Series

#: What stands where a name was.
LEFT_OUT = "…"

# Absolute paths, and URLs with what follows them.
_PATH = re.compile(
    r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s'",;]+"""
    r"""|(?<![\w./])(?:~|\.{1,2})?/[^\s'",;:]+|\b[A-Za-z]:\\[^\s'",;]+|\\\\[^\s'",;]+"""
)
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-fA-F]{1,4}:){3,}[0-9a-fA-F:]+"
)
# Values of settings that name nothing: numbers, switches, levels, and libraries.
_HARMLESS = re.compile(
    r"-?\d+(?:\.\d+)?|true|false|on|off|yes|no|none|trace|debug|info|warn(?:ing)?|error|fatal|version"
    r"|detail|ring|tree|gloo|mpi|nccl|ccl|cpu|gpu|cuda|dynamic|lo",
    re.IGNORECASE,
)
# Names shorter than this are words of other meaning, too, and only replaced where they stand alone.
_SHORTEST = 4


def anonymous(run: Run) -> Run:
    """The run with hosts called host-1, host-2 …, and without paths; its analysis is the same."""
    cleaned = cleaner(run)
    logs = tuple(_log(log, cleaned) for log in run.logs)
    problems = tuple(
        Problem(_base(one.where, run, cleaned), cleaned(one.what)) for one in run.problems
    )
    name = str(run.fact("run_name") or run.id)
    return replace(
        run,
        source=name,
        logs=logs,
        problems=problems,
        events=tuple(_event(one, run, cleaned) for one in run.events),
        series=tuple(_series(one, run, cleaned) for one in run.series),
    )


def cleaner(run: Run) -> Callable[[str], str]:
    """What takes the names of a run's hosts, and paths, out of a text."""
    hosts = _aliases(run)
    known = {**hosts}
    for host, alias in hosts.items():
        # A machine is also known by the first part of its name; that of an address is any number.
        first = host.partition(".")[0]
        if not first.isdecimal():
            known.setdefault(first, alias)
    paths = {log.path: PurePath(log.path).name for log in run.logs if "/" in log.path}
    known |= paths
    known |= {run.source: str(run.fact("run_name") or run.id)} if run.source else {}
    names = [name for name in sorted(known, key=len, reverse=True) if name]
    whole = re.compile("|".join(map(_whole, names))) if names else None

    def cleaned(text: str) -> str:
        named = whole.sub(lambda found: known[found[0]], text) if whole else text
        return without_paths(named)

    return cleaned


def without_paths(text: str) -> str:
    """The text without absolute paths, URLs and addresses of machines."""
    return _ADDRESS.sub(LEFT_OUT, _PATH.sub(LEFT_OUT, text))


def _aliases(run: Run) -> dict[str, str]:
    """Names that sort as the hosts' own do: what depends on their order stays as it is.

    Of hosts that only other logs name, too.
    """
    width = len(str(len(run.hosts)))
    own = {host: f"host-{number:0{width}d}" for number, host in enumerate(run.hosts, start=1)}
    short = {host.partition(".")[0]: alias for host, alias in own.items()}
    told = {host for event in run.events for host in event.hosts}
    told |= {series.node for series in run.series if series.node and series.rank is None}
    others = sorted(host for host in told - own.keys() if host.partition(".")[0] not in short)
    return {
        **{host: f"other-host-{number}" for number, host in enumerate(others, start=1)},
        **{host: short[host.partition(".")[0]] for host in told if host.partition(".")[0] in short},
        **own,
    }


def _whole(name: str) -> str:
    return rf"(?<![\w.-]){re.escape(name)}(?![\w-])" if len(name) >= _SHORTEST else _alone(name)


def _alone(name: str) -> str:
    return rf"(?<![^\s'\"(]){re.escape(name)}(?![^\s'\",.;:)])"


def _log(log: Log, cleaned: Callable[[str], str]) -> Log:
    facts = {name: _value(value, cleaned) for name, value in log.facts.items()}
    if isinstance(log.facts.get("settings"), Mapping):
        facts["settings"] = {
            str(name): value if _HARMLESS.fullmatch(str(value)) else LEFT_OUT
            for name, value in log.facts["settings"].items()
        }
    return replace(log, path=cleaned(PurePath(log.path).name), facts=facts)


def _event(event: Event, run: Run, cleaned: Callable[[str], str]) -> Event:
    return replace(
        event,
        where=_base(event.where, run, cleaned),
        what=cleaned(event.what),
        hosts=tuple(map(cleaned, event.hosts)),
    )


def _series(series: Series, run: Run, cleaned: Callable[[str], str]) -> Series:
    node = None if series.node is None else cleaned(series.node)
    return replace(series, where=_base(series.where, run, cleaned), node=node)


def _value(value: Any, cleaned: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, Mapping):
        return {name: _value(own, cleaned) for name, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(own, cleaned) for own in value]
    return value


def _base(where: str, run: Run, cleaned: Callable[[str], str]) -> str:
    return cleaned(where if where == run.source else PurePath(where).name)
