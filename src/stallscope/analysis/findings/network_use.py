"""Describe how fast the network reduces a run's gradients, compared with exposed allreduce."""

from __future__ import annotations

from stallscope.formatting.numbers import amount

from ..network.network_check import NetworkUse, Parts


def network_sentence(use: NetworkUse) -> str:
    """Describe in one or two sentences the network's speed, and the exposed time that it explains."""
    if use.differs:
        return (
            "stallscope netcheck measured another network, or with other settings: "
            f"{'; '.join(use.differs)}. Launch it like the training."
        )
    if use.gradients_ms is None:
        return f"The network was measured {measured_at(use)}, without the run's gradients."
    whole = amount(use.gradients_ms.value, "ms", use.gradients_ms.ci95)
    parts = "" if use.parts is None else f" ({_largest_first(use.parts)})"
    return f"These gradients take {whole} on this network{parts}; {_exposed(use)}."


def measured_at(use: NetworkUse) -> str:
    """Return the time of the measurement, in words."""
    return f"{use.check.measured_at:%Y-%m-%d %H:%M} UTC"


def _exposed(use: NetworkUse) -> str:
    if use.exposed_ms is None:
        return "how much the run exposes is not known"
    exposed = f"{amount(use.exposed_ms.value, 'ms', use.exposed_ms.ci95)} are exposed"
    more = use.excess_ms
    if more is None or more.ci95 is None:
        return exposed
    if more.ci95[0] > 0:
        return (
            f"{exposed}, {amount(more.value, 'ms', more.ci95)} more than the network needs while "
            "nothing trains"
        )
    if more.ci95[1] < 0:
        return f"{exposed}, as backward hides the rest"
    return exposed


def _largest_first(parts: Parts) -> str:
    known = {name: mean.value for name, mean in vars(parts).items() if mean is not None}
    named = sorted(known, key=lambda name: -known[name])
    return ", ".join(f"{amount(known[name], 'ms')} {name}" for name in named)
