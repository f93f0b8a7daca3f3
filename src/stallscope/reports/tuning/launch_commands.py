"""The lines that start a job with a setting: for the environment and for each launcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stallscope.analysis.tuning import Tuned
from stallscope.parsers.formats.autotune import Sample

_WIDTH = 76
# The flags of horovodrun for on and off; the flag of the cache takes a number.
_FLAGS = {
    "hierarchical_allreduce": ("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    "hierarchical_allgather": ("--hierarchical-allgather", "--no-hierarchical-allgather"),
    "torus_allreduce": ("--torus-allreduce", "--no-torus-allreduce"),
    "cache_enabled": ("--cache-capacity 1024", "--cache-capacity 0"),
}


def environment(tuned: Tuned) -> tuple[str, ...]:
    """Return the lines that set the setting, without switches that have no effect on this job."""
    chosen = _chosen(tuned)
    return () if chosen is None else chosen.environment


def commands(tuned: Tuned) -> dict[str, str]:
    """Return the command of each launcher by its name; nothing without a setting."""
    chosen = _chosen(tuned)
    if chosen is None:
        return {}
    ranks = 8 if tuned.run is None else tuned.run.run.size
    flags = [
        f"--fusion-threshold-mb {_whole_mib(chosen)}",
        f"--cycle-time-ms {chosen.cycle_time_ms:g}",
        *(_FLAGS[name][not on] for name, on in chosen.switches.items() if name in _FLAGS),
    ]
    exported = [f"-x {line}" for line in chosen.environment]
    pairs = [line.partition("=") for line in chosen.environment]
    inside = "".join(f'    "{name}": "{value}",\n' for name, _, value in pairs)
    return {
        "horovodrun": _shell([f"horovodrun -np {ranks}", *flags, "python train.py"]),
        "mpirun": _shell([f"mpirun -np {ranks}", *exported, "python train.py"]),
        "spark": f"horovod.spark.run(train, num_proc={ranks}, env={{\n{inside}}})",
    }


def rounded(tuned: Tuned) -> bool:
    """Return whether horovodrun's flag, which takes whole MiB, rounds the setting."""
    chosen = tuned.setting
    return chosen is not None and _whole_mib(chosen) != chosen.fusion_mib


def _whole_mib(sample: Sample) -> int:
    """Return the nearest whole number, but 0 only if fusion is off."""
    return max(1, round(sample.fusion_mib)) if sample.fusion_mib else 0


def _chosen(tuned: Tuned) -> Sample | None:
    if tuned.setting is None:
        return None
    switches = {name: on for name, on in tuned.setting.switches.items() if name not in tuned.idle}
    return replace(tuned.setting, switches=switches)


def _shell(words: Sequence[str]) -> str:
    return " \\\n  ".join(_packed(words))


def _packed(words: Sequence[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) > _WIDTH:
            yield line
            line = ""
        line += f" {word}" if line else word
    yield line
