"""Limit the load on shared services: a disk, an object store, MLflow's server.

Ranks start together, end their epochs together and finish together. These limits keep the
load small for thousands of ranks. docs/scale.md shows the arithmetic.
"""

from __future__ import annotations

#: A log that is copied as a whole continues in another file above this size, so that the copied bytes
#: grow with the run and not with its square.
COPIED_PART_BYTES = 1 << 20
#: Such a log is copied this often and at the end of an epoch, though not after every short epoch.
COPY_SECONDS = 300.0
SHORTEST_COPY_SECONDS = 60.0

#: The first upload to a server comes after this time; each pause is then twice the one before,
FIRST_UPLOAD_SECONDS = 5.0
#: up to this time or this share of the run so far: uploads grow with the logarithm of a run's length.
UPLOAD_SECONDS = 600.0
UPLOAD_SHARE = 1 / 16
#: The first upload finds the run, lists its files and sends; every later one only sends.
FIRST_UPLOAD_REQUESTS = 3

#: The limit for all ranks together on requests to a server or a store during training. An MLflow server
#: with one worker handles 140 uploads of some kilobytes per second on two busy cores.
REQUESTS_PER_SECOND = 50.0
#: The last upload waits no longer than this for its turn: the process waits for it, and a container that
#: ends would lose what was not sent.
LONGEST_LAST_TURN_SECONDS = 20.0

# Multiples of the golden ratio spread evenly over an interval, whatever their number (Knuth, The Art of
# Computer Programming, volume 3, 6.4).
_GOLDEN = 0.6180339887498949


def turn_seconds(rank: int, size: int, requests: int = 1) -> float:
    """Return how long a rank waits for its turn where all ranks would send requests at once.

    Every rank computes its own wait, rank 0 goes first, and all ranks together keep to
    ``REQUESTS_PER_SECOND``.
    """
    return rank * _GOLDEN % 1.0 * shortest_pause_seconds(size, requests)


def shortest_pause_seconds(size: int, requests: int = 1) -> float:
    """Return the shortest pause between two requests of a rank that keeps all ranks to the limit."""
    return size * requests / REQUESTS_PER_SECOND


def next_pause_seconds(pause: float, age: float, size: int) -> float:
    """Return the pause before a rank's next upload, given its last pause and the run's age."""
    longest = max(UPLOAD_SECONDS, UPLOAD_SHARE * age)
    # The second uploads start after the first upload of every rank.
    return max(min(2 * pause, longest), shortest_pause_seconds(size, FIRST_UPLOAD_REQUESTS))
