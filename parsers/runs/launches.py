"""Find the logs of one launch: without a shared folder, each rank's log has another run id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# Ranks of one launch start together; a launcher reuses a port only much later.
_ONE_LAUNCH_NS = 3_600 * 1_000_000_000


@dataclass
class Launch:
    """What logs say about the launch that they are from."""

    #: The launcher's names of the job; empty if no log has one.
    names: set[str]
    ranks: set[int]
    #: The wall time of the first start, nanoseconds since 1970.
    began_ns: int

    @classmethod
    def of_log(cls, name: object, rank: int, began_ns: int) -> Launch:
        """Return what one log says; ``name`` is its fact ``launch``."""
        return cls({str(name)} if name else set(), {rank}, began_ns)

    @classmethod
    def of_logs(cls, logs: Iterable[Launch]) -> Launch:
        """Return what several logs of one launch say together."""
        launches = list(logs)
        return cls(
            {name for launch in launches for name in launch.names},
            {rank for launch in launches for rank in launch.ranks},
            min(launch.began_ns for launch in launches),
        )

    def is_also(self, launch: Launch) -> bool:
        """Whether these are further ranks of the same launch."""
        if not self.names & launch.names or self.ranks & launch.ranks:
            return False
        return abs(self.began_ns - launch.began_ns) < _ONE_LAUNCH_NS

    def add(self, launch: Launch) -> None:
        """Add what other logs of this launch say."""
        self.names |= launch.names
        self.ranks |= launch.ranks
        self.began_ns = min(self.began_ns, launch.began_ns)


def by_launch(
    logs: Mapping[str, Sequence[T]], launch_of: Callable[[T], Launch]
) -> dict[str, list[T]]:
    """Join the logs of each launch under the lowest of their run ids, which names the run.

    Args:
        logs: by run id.
        launch_of: returns what a log says about its launch.
    """
    launches: dict[str, Launch] = {}
    joined: dict[str, list[T]] = {}
    for run_id, run_logs in sorted(logs.items()):
        launch = Launch.of_logs(map(launch_of, run_logs))
        name = next((name for name, earlier in launches.items() if earlier.is_also(launch)), None)
        if name is None:
            launches[run_id], joined[run_id] = launch, list(run_logs)
        else:
            launches[name].add(launch)
            joined[name] += run_logs
    return joined
