"""Describe how a network was measured, and the parts of its times."""

from __future__ import annotations

from stallscope.analysis.findings.network_use import measured_at
from stallscope.analysis.network.network_check import NetworkUse
from stallscope.formatting.lists import counted, joined

from .figures import bytes_in_words

#: Explanations of the parts.
PARTS = {
    "bandwidth": "all bytes in one message, without what a message of a few bytes takes",
    "latency": "one message of a few bytes on its way",
    "negotiation": "waiting for Horovod's next cycle, and agreeing on what every rank has ready",
    "fusion": "many tensors instead of one message: copies, and more messages",
}


def measured(use: NetworkUse) -> str:
    """Describe what was measured, when, and what was left out."""
    check = use.check
    with_what = joined([check.reduced_by, check.framework, *check.reduces_with])
    size = (
        ""
        if check.as_run is None
        else f", {counted(check.as_run.messages, 'gradient')} of {bytes_in_words(check.as_run.bytes)}"
    )
    equal = " in equal parts, as the log has only their sum" * (check.gradients_from == "totals")
    on = f"on {check.size:,} ranks with {with_what}{size}{equal}"
    left_out = "".join(f" Left out: {reason.rstrip('.')}." for reason in check.left_out)
    return f"Measured {measured_at(use)} {on}.{left_out}"
