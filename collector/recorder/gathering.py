"""Gather the logs of all ranks on rank 0's disk after training, over the job's own collective.

The recorder itself never starts a collective: a rank without a recorder would hang the job. Gathering
is a separate call, which all ranks make.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Union

from .input.input_times import SUFFIX as INPUT_SUFFIX
from .job.world import World, initialised_horovod, torch_distributed, world_of_training
from .step_log.line_format import SUFFIX

logger = logging.getLogger("stallscope")

#: Send an object from the given rank to all ranks. All ranks call it, for one rank after another.
Broadcast = Callable[[Any, int], Any]

# Names come from other machines and must not leave the folder. Few trainings need the pattern, so it is
# compiled on first use.
_NAME = r"rank-(\d{5,9})((?:\.\d{1,9})+)(%s|%s)" % (re.escape(SUFFIX), re.escape(INPUT_SUFFIX))
_MOST_COPIES = 1000


def gather_logs(log_dir: Union[str, "os.PathLike[str]"]) -> List[Path]:
    """Bring the logs of all ranks into rank 0's folder, over Horovod or torch.distributed.

        model.fit(data, callbacks=[StepLogger("/tmp/logs")])
        gather_logs("/tmp/logs")

    For ranks without a shared disk. It is a collective: all ranks call it after training, and wait for
    each other. A single process has nothing to gather. With other collectives, such as JAX's, it
    gathers nothing and logs a warning.

    Args:
        log_dir: the folder that was given to ``StepLogger``.

    Returns:
        The files written on rank 0; an empty list on other ranks.
    """
    world, broadcast = world_of_training(), _broadcast_of_training()
    if world.size == 1:
        return []
    if broadcast is None:
        logger.warning(
            "stallscope: logs are not gathered: neither Horovod nor torch.distributed is initialised"
        )
        return []
    return gather(log_dir, world, broadcast)


def _broadcast_of_training() -> Optional[Broadcast]:
    horovod, distributed = initialised_horovod(), torch_distributed()

    def over_horovod(logs: Any, root: int) -> Any:
        assert horovod is not None
        return horovod.broadcast_object(logs, root_rank=root, name="stallscope.logs.%d" % root)

    def over_torch(logs: Any, root: int) -> Any:
        assert distributed is not None
        carried = [logs]
        distributed.broadcast_object_list(carried, src=root)
        return carried[0]

    if horovod is not None:
        return over_horovod
    return None if distributed is None else over_torch


def gather(log_dir: Any, world: World, broadcast: Broadcast) -> List[Path]:
    """Bring the logs of all ranks into the folder of rank 0.

    The ranks send their logs one after another, so that no rank holds more than two in memory.
    Existing files are never overwritten: a log with other content gets the next free number.

    Returns:
        The files written on rank 0; an empty list on other ranks, and where all share the folder.
    """
    folder, written = Path(log_dir), []
    for rank in range(1, world.size):
        mine = _packed(folder, rank) if rank == world.rank else None
        logs = broadcast(mine, rank)
        if world.rank == 0:
            written += _unpacked(logs, rank, folder)
    return written


def _packed(folder: Path, rank: int) -> Dict[str, bytes]:
    """Read and compress the rank's own files; warn of unreadable files and continue."""
    logs = {}
    for path in sorted(folder.glob("rank-%05d.*" % rank)):
        try:
            if re.fullmatch(_NAME, path.name):
                logs[path.name] = zlib.compress(path.read_bytes(), 1)
        except OSError as error:
            logger.warning("stallscope: %s is not gathered: %s", path, error)
    return logs


def _unpacked(logs: Any, rank: int, folder: Path) -> List[Path]:
    written = []
    for name, packed in sorted(logs.items()) if isinstance(logs, dict) else ():
        try:
            path = _write_new(folder, str(name), rank, zlib.decompress(packed))
            if path is not None:
                written.append(path)
        except (OSError, ValueError, zlib.error) as error:
            logger.warning(
                "stallscope: the log %s of rank %d is not gathered: %s", name, rank, error
            )
    return written


def _write_new(folder: Path, name: str, rank: int, data: bytes) -> Optional[Path]:
    """Write a file under its name or the next free one; return None if it already exists.

    Raises:
        ValueError: if no log has such a name.
        OSError: if it cannot be written.
    """
    match = re.fullmatch(_NAME, name)
    if match is None or int(match.group(1)) != rank:
        raise ValueError("this is not the name of a log of this rank")
    folder.mkdir(parents=True, exist_ok=True)
    numbers, suffix = match.group(2).rpartition(".")[::2], match.group(3)
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
    raise OSError("too many files of that name already exist")
