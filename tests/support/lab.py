"""Several hosts with real ssh, links and clocks: the fixture of tests that need a cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab import Clock, Lab, why_impossible

from .needing import need

LabStarter = Callable[..., Lab]


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[LabStarter]:
    """Start hosts; programs started over ssh find those in the given folders first."""
    reason = why_impossible()
    need(reason is None, str(reason))
    labs = ExitStack()
    count = itertools.count()

    def start(
        hosts: int,
        programs: Sequence[Path],
        clocks: Mapping[str, Clock] | None = None,
        **settings: str,
    ) -> Lab:
        path = os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"])
        folder = tmp_path / f"lab-{next(count)}"
        return labs.enter_context(Lab(folder, hosts, {"PATH": path, **settings}, clocks))

    with labs:
        yield start
