"""Several hosts on one machine: for tests of what needs a cluster, and to score the product on one."""

from .host import FAKETIME, Clock, Host
from .lab import Lab, why_impossible

__all__ = ["FAKETIME", "Clock", "Host", "Lab", "why_impossible"]
