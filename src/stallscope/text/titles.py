"""Titles of the entries of ledgers, jobs and gains."""

from __future__ import annotations

from stallscope.analysis import Analysis

TITLES = {
    "input": "Input",
    "compute": "Compute",
    "other": "Other",
    # Of the typical rank, and of each rank: the same time under two names.
    "imbalance": "Waiting for slow ranks",
    "wait": "Waiting for slow ranks",
    "allreduce": "Exposed allreduce",
    "waiting_or_allreduce": "Waiting + allreduce",
    "startup": "Start-up",
    "warmup": "Warm-up",
    "steps": "Steps",
    "rest": "Rest of the step",
    "validation": "Validation",
    "checkpoint": "Checkpoints",
    "restart": "Restarts",
    "repeated": "Repeated steps",
    "stopped": "Hanging",
    "epoch_gap": "Between epochs",
    "unrecorded": "Not recorded",
    "input_waiting": "Waiting for slow input",
    "compute_waiting": "Waiting for slow compute",
    "other_waiting": "Waiting for work between steps",
    "input_stall": "Input stall",
    "scale": "Scale",
    "bandwidth": "Bandwidth",
    "latency": "Latency",
    "negotiation": "Negotiation",
    "fusion": "Fusion",
}


def title_of(name: str) -> str:
    """Name an entry for people."""
    return TITLES.get(name, name)


def entry_name(name: str, analysis: Analysis) -> str:
    """Name an entry as it is drawn: allreduce may include waiting for ranks without a log."""
    hidden = name == "allreduce" and analysis.waiting_unknown
    return "waiting_or_allreduce" if hidden else name


def entry_title(name: str, analysis: Analysis) -> str:
    """Title an entry of either ledger."""
    return TITLES[entry_name(name, analysis)]
