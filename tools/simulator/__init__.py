"""Simulate logs of jobs with known truth: for tests, for the docs, and to score the analysis."""

from .clocks import Clocks, Jump, Slew
from .communication import Fixed, Ring, Tree
from .faults import Always, Between, Bursts, EveryNth, Fault, Ramp
from .job import Job
from .logs import write_logs
from .noise import Noise
from .simulation import Simulated, simulate
from .truth import Truth

__all__ = [
    "Always",
    "Between",
    "Bursts",
    "Clocks",
    "EveryNth",
    "Fault",
    "Fixed",
    "Job",
    "Jump",
    "Noise",
    "Ramp",
    "Ring",
    "Simulated",
    "Slew",
    "Tree",
    "Truth",
    "simulate",
    "write_logs",
]
