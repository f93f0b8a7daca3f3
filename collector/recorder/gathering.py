"""Logs of all ranks on rank 0's disk, brought there by the job's own collective, when training is over.

The recorder itself starts no collective: a rank without it would hang the job. This is a call of its
own, which all ranks make.
"""

from __future__ import annotations

import logging
import re
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List

from .format import SUFFIX
from .identity import World
from .input_file import SUFFIX as INPUT_SUFFIX

logger = logging.getLogger("stallscope")

#: Gives every rank what the rank of this number has; called by all ranks, in turn.
Broadcast = Callable[[Any, int], Any]

# Names come from other machines, and must stay in the folder.
_NAME = re.compile(
    r"rank-(\d{5,9})((?:\.\d{1,9})+)(%s|%s)" % (re.escape(SUFFIX), re.escape(INPUT_SUFFIX))
)
_MOST_COPIES = 1000


def gather(log_dir: Any, world: World, broadcast: Broadcast) -> List[Path]:
    """Bring the logs of all ranks into the folder of rank 0.

    One rank's logs after the other's are on their way, so that no rank has more than two in memory.
    Nothing is written over: a log that is there with other content gets the next free number.

    Returns:
        On rank 0 the files that it has written; none on the others, and where all share the folder.
    """
    folder, written = Path(log_dir), []
    for rank in range(1, world.size):
        mine = _packed(folder, rank) if rank == world.rank else None
        logs = broadcast(mine, rank)
        if world.rank == 0:
            written += _unpacked(logs, rank, folder)
    return written


def _packed(folder: Path, rank: int) -> Dict[str, bytes]:
    """The rank's own files; whatever cannot be read is said, and all other ranks go on."""
    logs = {}
    for path in sorted(folder.glob("rank-%05d.*" % rank)):
        try:
            if _NAME.fullmatch(path.name):
                logs[path.name] = zlib.compress(path.read_bytes(), 1)
        except OSError as error:
            logger.warning("stallscope: %s is not gathered: %s", path, error)
    return logs


def _unpacked(logs: Any, rank: int, folder: Path) -> List[Path]:
    written = []
    for name, packed in sorted(logs.items()) if isinstance(logs, dict) else ():
        try:
            path = _place(folder, str(name), rank, zlib.decompress(packed))
            if path is not None:
                written.append(path)
        except (OSError, ValueError, zlib.error) as error:
            logger.warning(
                "stallscope: the log %s of rank %d is not gathered: %s", name, rank, error
            )
    return written


def _place(folder: Path, name: str, rank: int, data: bytes) -> Any:
    """Write a file under its name, or the next free one; None where it is there already.

    Raises:
        ValueError: for a name that no log has.
        OSError: if it cannot be written.
    """
    found = _NAME.fullmatch(name)
    if found is None or int(found.group(1)) != rank:
        raise ValueError("that is no name of a log of this rank")
    folder.mkdir(parents=True, exist_ok=True)
    numbers, suffix = found.group(2).rpartition(".")[::2], found.group(3)
    for more in range(_MOST_COPIES):
        number = int(numbers[1]) + more
        path = folder / ("rank-%05d%s.%d%s" % (rank, numbers[0], number, suffix))
        try:
            with path.open("xb") as file:
                file.write(data)
            return path
        except FileExistsError:
            if path.read_bytes() == data:
                return None
    raise OSError("too many files of that name are there already")
