"""A Run: the records of one job, which parsers return and the analysis reads.

Times are int64 nanoseconds on the monotonic clock of the rank's host; each log's anchor relates that
clock to wall time. Values that were not measured are null.
"""

from .events import (
    Event,
    InputStage,
    LoaderFigures,
    LoaderTrial,
    MeasuredInput,
    NetworkCheck,
    PairRounds,
    Rounds,
    Series,
)
from .log import (
    FROM_LABELS,
    INTERVALS_SCHEMA,
    STEPS_SCHEMA,
    TIMESTAMPS,
    Log,
    PipelinePart,
    Problem,
    places_of,
    sessions_of,
    wall_offsets,
)
from .run import IncompleteRank, Run, newest_first

__all__ = [
    "FROM_LABELS",
    "INTERVALS_SCHEMA",
    "STEPS_SCHEMA",
    "TIMESTAMPS",
    "Event",
    "IncompleteRank",
    "InputStage",
    "LoaderFigures",
    "LoaderTrial",
    "Log",
    "MeasuredInput",
    "NetworkCheck",
    "PairRounds",
    "PipelinePart",
    "Problem",
    "Rounds",
    "Run",
    "Series",
    "newest_first",
    "places_of",
    "sessions_of",
    "wall_offsets",
]
