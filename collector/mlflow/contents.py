"""Describe the contents of a run without logs."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_NAMES = 5


def no_logs_message(
    where: str, artifacts: int, possible_logs: int, metrics: Iterable[str], params: Iterable[str]
) -> str:
    """Return a message that lists what the run has instead, and says how to add logs.

    Args:
        where: the run.
        artifacts: the number of artifacts.
        possible_logs: the number of artifacts that were tried as logs.
        metrics: the names of its metrics.
        params: the names of its parameters.
    """
    kind = "none of them a log" if possible_logs else "weights or images"
    has = [
        f"{artifacts} artifact(s), {kind}" if artifacts else "no artifacts",
        _count("metric", metrics),
        _count("param", params),
    ]
    return (
        f"{where}: there is no step log in this run: it has {', '.join(has)}. Give StepLogger its id, "
        f"or upload existing logs: stallscope collect FOLDER --to {where}"
    )


def _count(kind: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return f"no {kind}s"
    more = ", …" if len(found) > _MOST_NAMES else ""
    return f"{len(found)} {kind}(s) ({', '.join(found[:_MOST_NAMES])}{more})"
