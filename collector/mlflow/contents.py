"""What a run has that has no logs, in words."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_NAMES = 5


def no_logs(
    where: str, artifacts: int, possible_logs: int, metrics: Iterable[str], params: Iterable[str]
) -> str:
    """One sentence: what the run has instead, and how logs get there.

    Args:
        where: the run.
        artifacts: how many files it has that are no logs.
        possible_logs: how many of them may have been some.
        metrics: names of them.
        params: the same.
    """
    kind = "none of them a log" if possible_logs else "weights or pictures"
    has = [
        f"{artifacts} artifact(s), {kind}" if artifacts else "no artifacts",
        _counted("metric", metrics),
        _counted("param", params),
    ]
    return (
        f"{where}: there is no step log in this run: it has {', '.join(has)}. Give StepLogger its id, "
        f"or upload logs that are elsewhere: stallscope collect FOLDER --to {where}"
    )


def _counted(kind: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return f"no {kind}s"
    more = ", …" if len(found) > _MOST_NAMES else ""
    return f"{len(found)} {kind}(s) ({', '.join(found[:_MOST_NAMES])}{more})"
