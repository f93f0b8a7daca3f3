"""Run tests in parallel, group by group."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from .groups import group_of


class Groups(LoadScopeScheduling):
    """Assign whole groups to workers.

    xdist has marks for that, which it adds to the ids of tests. From pytest 9.2 on these cannot be
    changed, and every test goes to any free worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])
