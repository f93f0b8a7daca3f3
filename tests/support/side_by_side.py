"""Tests side by side, group by group."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from .groups import group_of


class Groups(LoadScopeScheduling):
    """Hands out whole groups.

    xdist has marks for that, which it adds to the ids of tests. From pytest 9.2 on these cannot be
    changed, and every test goes to whoever is free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])
