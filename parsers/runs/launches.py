"""Find the logs of one launch: without a shared folder, each rank's log has another run id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Ranks of one launch start together; a launcher reuses a port only much later.
_ONE_LAUNCH_NS = 3_600 * 1_000_000_000


@dataclass(frozen=True)
class Launch:
    """The logs with one run id."""

    #: The launcher's names of the job; empty if no log has one.
    names: frozenset[str]
    ranks: frozenset[int]
    #: The wall time of the first start, nanoseconds since 1970.
    began_ns: int

    def is_also(self, other: Launch) -> bool:
        """Whether these are further ranks of the same launch."""
        if not self.names & other.names or self.ranks & other.ranks:
            return False
        return abs(self.began_ns - other.began_ns) < _ONE_LAUNCH_NS

    def joined_with(self, other: Launch) -> Launch:
        """Return both as one."""
        began = min(self.began_ns, other.began_ns)
        return Launch(self.names | other.names, self.ranks | other.ranks, began)


def ids_by_launch(launches: Mapping[str, Launch]) -> list[list[str]]:
    """Return the run ids of each launch, ascending: the first one names the run."""
    found: list[tuple[Launch, list[str]]] = []
    for run_id, own in sorted(launches.items()):
        at = next((at for at, (launch, _) in enumerate(found) if launch.is_also(own)), None)
        if at is None:
            found.append((own, [run_id]))
        else:
            launch, ids = found[at]
            found[at] = launch.joined_with(own), [*ids, run_id]
    return [ids for _, ids in found]
