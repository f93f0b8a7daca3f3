"""Read step times that programs print, of single steps or of all steps since their last line.

A format is one file with the patterns of its lines and their meaning (``PrintedStepsParser``). The lines
become windows: intervals of the kind ``window`` with a number of steps, a start and an end, and the wait
for data, if it is printed (``windows``).

- ``parser`` reads the lines of a format, and makes a log of each rank.
- ``epochs`` measures epochs between lines, or reads their printed durations.
- ``rates`` decides whether a rate is that of one rank or of all ranks.
"""

from .printed_step_parser import NO_RANK, Meaning, PrintedStepsParser, logs_of, with_year_note

__all__ = ["NO_RANK", "Meaning", "PrintedStepsParser", "logs_of", "with_year_note"]
