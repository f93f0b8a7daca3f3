"""Propose a pattern for the lines of a trainer that no parser knows.

In comes the output of a program; out comes a pattern for ``--read-as``, with what it would read. Nothing
is read with it before the user says so.

1. ``lines`` takes a sample of lines and gives each its template: the line with places for numbers.
2. ``roles`` says what a number may be by the words next to it: a step, an epoch, a duration, a rate.
3. ``kinds`` groups lines with the same words or the same roles.
4. ``choosing`` picks the lines and the numbers in them: a step has to count (``fields``), a duration has
   to fit the timestamps (``durations``).
5. ``writing`` makes a pattern of these places, with as little text as tells the lines apart.
6. ``proposal`` checks the pattern with ``LinePatternParser`` on the lines that it was made of, and reads
   the file with it.
"""

from .proposal import NoProposal, Proposer

__all__ = ["NoProposal", "Proposer"]
