"""What recording may ask of what all ranks share: a disk, an object store, MLflow's server.

Ranks begin together, end their epochs together and end together. What one of them asks for is little;
these limits keep it little for thousands of them. docs/scale.md has the arithmetic.
"""

from __future__ import annotations

#: A log that is copied as a whole goes on in another file from this size on: what is copied grows with
#: the run, and not with its square.
COPIED_PART_BYTES = 1 << 20
#: Such a log is copied as often as this, and at the ends of epochs, but of short ones only of some.
COPY_SECONDS = 300.0
SHORTEST_COPY_SECONDS = 60.0

#: The first upload to a server comes after this, the next after twice as long each time,
FIRST_UPLOAD_SECONDS = 5.0
#: up to this, or to that share of the run so far: the uploads of a long run grow with its logarithm.
UPLOAD_SECONDS = 600.0
UPLOAD_SHARE = 1 / 16
#: The first one finds the run, looks what is there and sends; every other one only sends.
FIRST_UPLOAD_REQUESTS = 3

#: All ranks of a job together ask a server or a store for no more than this while they train. MLflow's
#: server with one worker takes 140 uploads of some kilobytes a second on two busy cores.
REQUESTS_PER_SECOND = 50.0
#: What is left at the end does not wait longer than this for its turn: the process waits for it, and a
#: container that ends with it takes along what was not sent.
LONGEST_LAST_TURN_SECONDS = 20.0

# Multiples of the golden ratio divide any stretch of time evenly, however many they are (Knuth, The Art
# of Computer Programming, volume 3, 6.4).
_GOLDEN = 0.6180339887498949


def turn_seconds(rank: int, size: int, requests: int = 1) -> float:
    """How long a rank waits for its turn where all ranks would ask for something at one moment.

    Every rank finds its own without asking the others, rank 0 comes first, and all of them together
    keep to ``REQUESTS_PER_SECOND``.
    """
    return rank * _GOLDEN % 1.0 * shortest_pause_seconds(size, requests)


def shortest_pause_seconds(size: int, requests: int = 1) -> float:
    """What lies between two times that a rank asks, so that all ranks together keep to the limit."""
    return size * requests / REQUESTS_PER_SECOND


def next_pause_seconds(pause: float, age: float, size: int) -> float:
    """What lies between the next two uploads of a rank, after this pause, in a run of this age."""
    longest = max(UPLOAD_SECONDS, UPLOAD_SHARE * age)
    # The second uploads begin when all ranks have had their first one.
    return max(min(2 * pause, longest), shortest_pause_seconds(size, FIRST_UPLOAD_REQUESTS))
