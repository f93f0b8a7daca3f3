"""Run several hosts on one machine, for tests and scores that need a cluster."""

from .host import FAKETIME, Clock, Host
from .lab import Lab, why_impossible
from .slurm import Slurm, why_no_slurm

__all__ = ["FAKETIME", "Clock", "Host", "Lab", "Slurm", "why_impossible", "why_no_slurm"]
