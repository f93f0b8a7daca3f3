"""Published scaling curves to compare with, each with its source.

Figures are as printed there, from tables and text, not read off charts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedCurve:
    """A published series: per number of processes a rate, or only an efficiency."""

    name: str
    source: str
    #: The unit of ``values``: ``samples/s``, ``efficiency`` (a fraction) or ``seconds`` for the same
    #: work.
    unit: str
    processes: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def efficiency(self) -> tuple[float, ...]:
        """Fractions of ideal scaling from one process."""
        if self.unit == "efficiency":
            return self.values
        rates = [1 / value if self.unit == "seconds" else value for value in self.values]
        pairs = zip(self.processes, rates, strict=True)
        return tuple(rate / rates[0] * self.processes[0] / count for count, rate in pairs)


_HOROVOD = "Horovod's docs/benchmarks: 128 servers with 4 Pascal GPUs each, 25 Gbit/s RoCE"
_RUNNER = "Pan et al. 2020 (arXiv:2005.05510), HorovodRunner on Databricks"
_CALTECH = f"{_RUNNER}: Caltech101 on GPUs, images/s of the whole job"
_MNIST = f"{_RUNNER}: MNIST on CPUs, seconds for the same work"
_SIZES = (1, 8, 16, 32)

CURVES: tuple[PublishedCurve, ...] = (
    PublishedCurve("Inception V3, 512 GPUs", _HOROVOD, "efficiency", (512,), (0.90,)),
    PublishedCurve("ResNet-101, 512 GPUs", _HOROVOD, "efficiency", (512,), (0.90,)),
    PublishedCurve("VGG-16, 512 GPUs", _HOROVOD, "efficiency", (512,), (0.68,)),
    PublishedCurve(
        "VGG-16, HorovodRunner", _CALTECH, "samples/s", _SIZES, (24.6, 96.5, 110.6, 145.5)
    ),
    PublishedCurve(
        "Inception V3, HorovodRunner", _CALTECH, "samples/s", _SIZES, (21.5, 137.3, 217.0, 337.3)
    ),
    PublishedCurve(
        "MNIST, HorovodRunner",
        _MNIST,
        "seconds",
        (1, 2, 4, 8, 16, 32),
        (1631.0, 1113.0, 687.0, 477.0, 400.0, 390.0),
    ),
)
