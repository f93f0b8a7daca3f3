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
    """Open the session of one recording.

    Args:
        options: the arguments of StepLogger.
        world: the rank of this process.
        facts: what the framework knows about the training; facts of the host are added.
        counted: steps that the framework has counted so far.
        before_flush: called before every flush, and once more at the end (see ``Session``).
        position: returns how far the step in flight has come.
    """
    known = {
        **host_facts(),
        **facts,
        "run_name": options.run_name,
        "synthetic": options.synthetic,
        "batch_size": options.batch_size,
        "settings": settings(os.environ),
        "timeline": timeline_is_on(os.environ),
    }
    return Session(
        options.log_dir,
        world,
        known,
        counted,
        options.flush_seconds,
        before_flush=before_flush,
        mlflow_run_id=options.mlflow_run_id,
        sink=options.sink,
        sampling=options.sampling,
        max_file_bytes=options.max_file_bytes,
        position=position,
        stacks=options.stacks,
        machine=options.machine,
        summary=options.summary,
        scalars=options.scalars,
    )
