"""Split the output of a launcher into the lines of each rank.

The input is a whole file: the output of one process, or of all ranks with the labels of a launcher, or
of a logger around a launcher:

    [1,0]<stdout>:text                                        Open MPI: job and rank
    Sat Nov 21 02:28:01 2026[1,0]<stdout>:text                the same with times, in Open MPI 4
    [Sat Nov 21 02:28:03 2026][1,0]<stdout>: text             and in Open MPI 5, with a space
    [0]<stdout>:text, Sat Nov 21 02:29:50 2026[0]<stdout>:text    horovodrun over Gloo
    [0] text                                                  MPICH -l
    [default0]:text                                           torchrun: role and local rank
    0: text                                                   srun --label
    (RayTrainWorker pid=71, ip=10.0.0.2) text                 Ray, which prints ranks elsewhere
    2026-11-21 02:28:01,123 - STDOUT - INFO - [1,0]<stdout>:text  a logger around one of them

The output is lines, each with its rank, its stream and the text that contains its timestamp:

- ``rank_lines`` yields one ``Line`` at a time. A ``LineFilter`` names the needles (short texts) of
  the lines that the caller needs; no other line becomes a Python object.
- ``line_blocks`` yields all lines as columns of numbers, many at once (``Lines``). A ``LineForm`` finds
  those with certain fields.
- ``output_by_rank`` returns everything that each rank has written, byte for byte.
- ``labels_of`` names the launcher; ``may_contain`` searches for a text that labels may have cut.

A launcher labels each piece of output that it reads, so labels also occur within lines, and other ranks'
output between two pieces of a rank's line. Text without a label between labelled lines is the
launcher's own: its rank is None. A line is returned as a terminal shows it in the end: a progress bar
is one line of megabytes, and everything before its last carriage return was overwritten.

Each block of a megabyte is processed in three steps:

1. ``splitting`` finds all labels of a block and splits it into fragments: the pieces between labels,
   cut after each newline.
2. ``lines`` joins the fragments of lines that labels have cut. Nearly all fragments are whole lines
   and stay numbers in an array; only the others are copied.
3. ``filtering`` drops lines without any needle, and finds fields, while lines are numbers.

Memory: one block and one unfinished line per rank, whatever the size of the file. Every step takes
time in proportion to the bytes, for any input.
"""

from .filtering import (
    LONGEST_LINE,
    LineField,
    LineFilter,
    LineForm,
    Lines,
    may_contain,
    stamps_before,
)
from .labelled_lines import Line, line_blocks, output_by_rank, rank_lines
from .labels import LONGEST_PREFIX, Labels, labels_of

__all__ = [
    "LONGEST_LINE",
    "LONGEST_PREFIX",
    "Labels",
    "Line",
    "LineField",
    "LineFilter",
    "LineForm",
    "Lines",
    "labels_of",
    "line_blocks",
    "may_contain",
    "output_by_rank",
    "rank_lines",
    "stamps_before",
]
