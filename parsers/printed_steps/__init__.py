"""Times of steps that programs print about one step, or about the steps since their last line.

A format is one file with patterns of its lines and what these mean (``PrintedStepsParser``). What they
say becomes a series of windows: intervals of the kind ``window``, each with its number of steps, its
start and end, and for how long its steps waited for data where lines say that.

- ``parser`` reads the lines of a format, and makes a log of each rank.
- ``lines`` numbers the steps: over the job, and since the line before.
- ``durations`` finds how long windows took, from what is most precise in the lines.
- ``epochs`` measures epochs between lines, or reads how long they took.
- ``rates`` tells whether a rate is that of one rank or of all ranks.
"""

from .parser import UNLABELLED, Meaning, PrintedStepsParser, logs_of, with_year_note

__all__ = ["UNLABELLED", "Meaning", "PrintedStepsParser", "logs_of", "with_year_note"]
