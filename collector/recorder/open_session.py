"""Open a log the same way for every framework."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from .facts import host_facts, settings, timeline_is_on
from .identity import World
from .in_flight import Position, PositionReader
from .options import Options
from .session import Session


def open_session(
    options: Options,
    world: World,
    facts: Dict[str, Any],
    counted: int,
    before_flush: Optional[Callable[[], None]] = None,
    position: PositionReader = Position,
) -> Session:
    """Open the session of one recording, with the host's facts added; the arguments are Session's."""
    known = {
        **host_facts(),
        **facts,
        "run_name": options.run_name,
        "synthetic": options.synthetic,
        "batch_size": options.batch_size,
        "settings": settings(os.environ),
        "timeline": timeline_is_on(os.environ),
    }
    return Session(options, world, known, counted, before_flush, position)
