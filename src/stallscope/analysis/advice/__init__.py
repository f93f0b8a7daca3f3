"""Advice: what to change, with a line to paste for the user's framework, and when not to."""

from .advise import advise
from .communication import larger_cache
from .imbalance import even_work
from .input import InputTimes, for_late_input, slow_first_steps
from .piece import Advice, in_words
from .training import (
    ONE_BROADCAST,
    averaged_metrics,
    broadcast_once,
    checkpoints_on_rank_0,
    dense_gradients,
    scaled_rate,
    sharding,
    shared_validation,
    shorter_solo_work,
    shuffled_anew,
)

__all__ = [
    "ONE_BROADCAST",
    "Advice",
    "InputTimes",
    "advise",
    "averaged_metrics",
    "broadcast_once",
    "checkpoints_on_rank_0",
    "dense_gradients",
    "even_work",
    "for_late_input",
    "in_words",
    "larger_cache",
    "scaled_rate",
    "sharding",
    "shared_validation",
    "shorter_solo_work",
    "shuffled_anew",
    "slow_first_steps",
]
