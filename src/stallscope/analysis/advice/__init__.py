"""Advice: what to change, in the user's own framework, as a line to paste, and when not to."""

from .advise import advise
from .imbalance import even_work
from .input import InputTimes, for_late_input
from .piece import Advice, in_words
from .setup import Setup, machines, number, processors_of
from .training import checkpoints_on_rank_0, scaled_rate, sharding, shared_validation

__all__ = [
    "Advice",
    "InputTimes",
    "Setup",
    "advise",
    "checkpoints_on_rank_0",
    "even_work",
    "for_late_input",
    "in_words",
    "machines",
    "number",
    "processors_of",
    "scaled_rate",
    "sharding",
    "shared_validation",
]
