"""Read step times that programs print, of single steps or of all steps since their last line.

A format is one file with the patterns of its lines and their meaning (``PrintedStepsParser``). The lines
become windows: intervals of the kind ``window`` with a number of steps, a start and an end, and the wait
for data, if it is printed (``windows``).

- ``printed_step_parser`` reads the lines of a format, and makes a log of each rank.
- ``rates`` decides whether a rate is that of one rank or of all ranks.
- ``trainers`` has the formats of known trainers.

Lines of any other trainer are read by ``step_lines_parser``:

- ``vocabulary`` has the words of figures, as data.
- ``figures`` finds the figures of lines that repeat, and ``rows`` reads them from all lines.
- ``counters`` finds what counts, and what measures time; ``evidence`` decides what the figures mean, and
  whether anything confirms it.
- ``bars`` reads bars.
"""

from .printed_step_parser import NO_RANK, Meaning, PrintedStepsParser, logs_of, with_year_note

__all__ = ["NO_RANK", "Meaning", "PrintedStepsParser", "logs_of", "with_year_note"]
