"""Find what other packages bring: parsers, report formats, export formats and kinds of places.

A package names them as entry points in its metadata. They are imported when they are first needed. One
that cannot be imported, is of another kind or has a name that is taken is left out with a warning: what
somebody installed makes no log unreadable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["parsers", "reports", "exports", "sources"]

_log = logging.getLogger("stallscope")


@dataclass(frozen=True)
class Plugin:
    """A part that a package brings: the class or object that its entry point names."""

    name: str
    #: The package and its version.
    package: str
    part: Any


def plugins(
    group: Group,
    kind: type | tuple[type, ...],
    taken: Callable[[], Collection[str]],
    calls: bool = False,
) -> list[Plugin]:
    """Return the parts of a group that can be used, by name.

    Args:
        group: the entry points ``stallscope.GROUP``.
        kind: the class of the part, or the class that it is derived from.
        taken: returns the names of the built-in parts, which stay; called only if a package has any.
        calls: whether the part is a class, to be called without arguments.
    """
    entries = sorted(_entry_points(group), key=lambda entry: (entry.name, entry.value))
    built_in = taken() if entries else ()
    parts: dict[str, Plugin] = {}
    for entry in entries:
        package = _package_of(entry)
        try:
            if entry.name in built_in:
                raise ValueError("Stallscope has one of this name")
            if entry.name in parts:
                raise ValueError(f"{parts[entry.name].package} has one of this name")
            part = _part_of(entry, kind)
            parts[entry.name] = Plugin(entry.name, package, part() if calls else part)
        except Exception as error:  # a package may raise anything when it is imported
            reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            _log.warning(
                "%s: %s of stallscope.%s is left out: %s", package, entry.name, group, reason
            )
    return list(parts.values())


@cache
def _entry_points(group: Group) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"stallscope.{group}"))


def _package_of(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _part_of(entry: EntryPoint, kind: type | tuple[type, ...]) -> Any:
    part = entry.load()
    if isinstance(part, kind) or (isinstance(part, type) and issubclass(part, kind)):
        return part
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise ValueError(f"{entry.value} is no {' or '.join(each.__name__ for each in kinds)}")
