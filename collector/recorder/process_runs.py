"""Remember the runs of this process by log folder, so that later sessions continue them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Tuple

from .identity import RunIdentity, join_run, rejoins, run_id_of_training
from .world import World


class _LastSession(NamedTuple):
    """This process's last session in a log folder."""

    identity: RunIdentity
    world: World
    next_step: int
    #: Steps that the framework had counted when the session closed; None if unknown.
    counted: Optional[int]

    @property
    def counted_or_recorded(self) -> int:
        return self.next_step if self.counted is None else self.counted


_last_sessions: Dict[str, _LastSession] = {}


def join_or_continue_run(
    log_dir: Path,
    world: World,
    counted: int,
    launch: Optional[str],
    wall_ns: int,
    shares_folder: bool,
) -> Tuple[RunIdentity, int]:
    """Join the job's run with the first session of this process; later sessions continue it.

    Repeated steps, another rank or another number of ranks start a new generation. All ranks run the
    same program, so they all count alike.

    Args:
        counted: steps that the framework has counted so far.
        shares_folder: whether ranks can meet in the folder; otherwise the parser matches them by their
            launch.

    Returns:
        The run, and the number of the session's first step.
    """
    key, next_step = str(log_dir), counted
    last = _last_sessions.get(key)
    if last is None:
        run_id = run_id_of_training(log_dir)
        if shares_folder:
            elastic = rejoins(os.environ)
            identity = join_run(log_dir, world, run_id, launch, wall_ns, elastic)
        else:
            identity = RunIdentity(run_id or uuid.uuid4().hex[:12], 0)
    elif last.world == world and counted >= last.counted_or_recorded:
        identity = last.identity
        # The framework's count can be too low (an optimizer that it does not know) or too high (an
        # update for a batch that never came): the recorded steps decide.
        next_step += last.next_step - last.counted_or_recorded
    else:
        identity = last.identity._replace(generation=last.identity.generation + 1)
    _last_sessions[key] = _LastSession(identity, world, next_step, None)
    return identity, next_step


def session_closed(log_dir: Path, next_step: int, counted: Optional[int]) -> None:
    """Note where the next session in the folder continues."""
    key = str(log_dir)
    if key in _last_sessions:
        _last_sessions[key] = _last_sessions[key]._replace(next_step=next_step, counted=counted)
