"""Propose a pattern for the lines of a trainer that no parser knows.

From the output of a program follows a pattern for ``--read-as``, with the results of reading with it.
The user has to confirm it.

1. ``lines`` takes a sample of lines and gives each its template: the line with places for numbers. 2.
``roles`` finds the possible meaning of a number in the words next to it: a step, an epoch, a duration,
   a rate.
3. ``kinds`` groups lines with the same words or the same roles.
4. ``choosing`` picks the lines and the numbers in them: a step has to count (``fields``), a duration has
   to fit the timestamps (``durations``).
5. ``writing`` makes a pattern of these places, with little text that still distinguishes the lines. 6.
``proposal`` checks the pattern with ``LinePatternParser`` on the lines for which it was made, and reads
   the file with it.
"""

from .proposal import NoProposal, Proposer

__all__ = ["NoProposal", "Proposer"]
