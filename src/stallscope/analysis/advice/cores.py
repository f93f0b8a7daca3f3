"""Advise on ranks that compete for CPU cores."""

from __future__ import annotations

from ..settings.cores import CpuLoad
from ..settings.setup import Setup
from .piece import Advice


def for_crowded_cores(setup: Setup, load: CpuLoad) -> tuple[Advice, ...]:
    """Advise fewer threads if ranks have more than their share, otherwise fewer ranks or more cores."""
    if load.threads > load.share * len(load.ranks):
        return (_fewer_threads(setup, load.share),)
    ranks = f"{load.most_ranks} rank{'' if load.most_ranks == 1 else 's'}"
    return (
        Advice(
            f"Start no more than {ranks} on a host with {load.cores} CPU cores, and use more or larger "
            "hosts for the rest",
            unless="Each rank already runs the fewest threads it can.",
        ),
    )


def _fewer_threads(setup: Setup, threads: int) -> Advice:
    line = {
        "keras": f"tf.config.threading.set_intra_op_parallelism_threads({threads})",
        "torch": f"torch.set_num_threads({threads})",
        None: f"OMP_NUM_THREADS={threads}",
    }[setup.framework]
    return Advice(
        "Give every rank its share of the CPU cores, before anything computes",
        line,
        unless="Or start fewer ranks on a host.",
    )
