"""Read step times that programs print, of single steps or of all steps since their last line.

Lines become windows: intervals of the kind ``window`` with a number of steps, a start and an end, and
the wait for data, if it is printed (``windows``).

- ``vocabulary`` has the words of figures, as data.
- ``figures`` takes lines apart into figures, and ``rows`` reads these from all lines.
- ``trainers`` is the table of known trainers: what tells their lines, and what these leave open.
- ``step_lines_parser`` reads the lines of one of them, else those of any other trainer if their own
  figures confirm them. ``rank_logs`` makes a log of each rank of any lines.
- ``rates`` decides whether a rate is that of one rank or of all ranks, and has what confirms printed
  times besides the clock.
- ``counters`` finds what counts, and what measures time; ``evidence`` decides what the figures mean, and
  whether anything confirms it.
- ``bar_states`` finds the states of bars, ``bar_evaluations`` takes batches of evaluations out of them,
  and ``bars`` chooses the training's.
- ``records`` reads tables and JSON, whose columns are ``Records`` in ``rows``.
- ``several_lines`` joins the lines of a record, and has the stages of timers behind lines about steps.

``metric_times`` finds the times of epochs and steps in metrics that TensorBoard or MLflow has logged.
"""

from .rank_logs import NO_RANK, logs_of, with_year_note
from .trainers import Meaning

__all__ = ["NO_RANK", "Meaning", "logs_of", "with_year_note"]
