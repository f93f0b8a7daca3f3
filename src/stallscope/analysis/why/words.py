"""Write sentences and advice on the reasons for slow ranks."""

from __future__ import annotations

from stallscope.formatting.lists import capitalised, listed, ranks_in_words
from stallscope.formatting.numbers import amount, significant

# A sentence for each code.
_SENTENCES = {
    "throttled": "{who}: the cgroup was throttled in {value} of its periods{than}.",
    "gpu_power_cap": "{who}: the power cap held the GPU's clocks down {value} of the time{than}.",
    "gpu_heat": "{who}: heat held the GPU's clocks down {value} of the time{than}.",
    "gpu_clock": "{who}: the GPU's clock is {value} below the fastest rank's{than}.",
    "other_processes": "{who}: other processes keep {value} busy{than}.",
    "stolen_cores": "{who}: the hypervisor takes {value}{than}.",
    "major_faults": "{who}: pages are read from disk again, {value}{than}: memory is short.",
    "memory_pressure": "{who}: processes waited for memory {value} of the time{than}.",
    "disk": "{who}: processes waited for the disk {value} of the time{than}.",
    "waits_for_cores": "{who}: {value} were ready to run and had no core{than}.",
    "more_cpu_time": "{who}: a step takes {value} of CPU time{than}: more work, or slower cores.",
}
# The other codes need no separate advice.
_ADVICE = {
    "throttled": "Raise the CPU limit of {who} (Kubernetes: resources.limits.cpu; Docker: --cpus), "
    "or use fewer threads and loader workers than it has cores.",
    "gpu_power_cap": "Compare the power limits of the GPUs (nvidia-smi -q -d POWER), and raise that "
    "of {who}.",
    "gpu_heat": "Look at the cooling of {who}: fans, airflow, and nvidia-smi -q -d TEMPERATURE.",
    "other_processes": "Find what else runs on {who} (top, or the scheduler's list of jobs), and "
    "move it, or reserve cores for the ranks.",
    "stolen_cores": "The virtual machine of {who} shares its cores with others: use a machine type "
    "with dedicated cores.",
    "major_faults": "Give {who} more memory: pages that were dropped from memory are read again.",
    "memory_pressure": "Give {who} more memory, or lower the loader's workers and prefetch.",
    "disk": "Put the data of {who} on a faster disk, or into memory: cache it, or read larger pieces.",
}
_LINK = (
    "Look at the network {where}: the speed that its card has negotiated (ethtool), errors and "
    "drops (ip -s link), the port and the cable, other traffic, and limits of the machine type."
)
_UNITS = {"cores": "core", "threads": "thread"}


def sentence(
    code: str, who: str, value: float, usual: float | None, unit: str, while_late: bool
) -> str:
    """Describe a count on slow ranks, and the same on their peers or at other times."""
    than = ""
    if usual is not None:
        otherwise = "otherwise" if while_late else "peers"
        than = f"{' while late' * while_late} ({otherwise}: {_with_unit(usual, unit)})"
    return _SENTENCES[code].format(who=capitalised(who), value=_with_unit(value, unit), than=than)


def advice(code: str, who: str) -> str | None:
    """Return advice on a reason; None if the other advice on the verdict suffices."""
    return _ADVICE[code].format(who=who) if code in _ADVICE else None


def advice_on_link(where: str) -> str:
    """Return advice on the cause of a slow link.

    Args:
        where: ``of host h3``, or ``between h2 and h3``.
    """
    return _LINK.format(where=where)


def whom(ranks: tuple[int, ...], hosts: tuple[str, ...]) -> str:
    """Name the hosts, or else the ranks."""
    if hosts:
        return listed("host", hosts)
    return ranks_in_words(ranks) if ranks else "all ranks"


def _with_unit(value: float, unit: str) -> str:
    number = significant(value)
    if unit == "%":
        return f"{number}%"
    if unit == "1/s":
        return f"{number} per second"
    if unit in _UNITS:
        return f"{number} {_UNITS[unit] if number == '1' else unit}"
    return amount(value, unit)
