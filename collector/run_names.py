"""Parse RUN arguments, find the run that a user names, and make names that are safe for files."""

from __future__ import annotations

import glob
import os
import re
from typing import List, NamedTuple, Sequence

from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.plain import did_you_mean

_MOST_NAMED = 10
_LOCAL_URL = "file://"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# With a suffix, names must fit into the 255 bytes that file systems allow.
_LONGEST = 100


class RunAddress(NamedTuple):
    """A RUN argument: a place, and the name of one of its runs; without a name, all of them."""

    place: str
    run: str = ""

    @classmethod
    def parse(cls, text: str) -> "RunAddress":
        """Parse ``PLACE`` or ``PLACE#NAME``.

        Existing paths count first, because the name of a folder may have a ``#``.

        Raises:
            UsageError: if the place or the name is empty.
        """
        marks = [index for index, letter in enumerate(text) if letter == "#"]
        if not marks or _exists(text):
            return cls(text)
        mark = next((mark for mark in reversed(marks) if _exists(text[:mark])), marks[0])
        place, run = text[:mark], text[mark + 1 :]
        if not place or not run:
            # An empty variable of a script must not mean this folder, or all runs.
            what = "name the run after" if place else "name the store, or the folder, before"
            raise UsageError('"%s": %s the #, as in runs#run-42' % (text, what))
        return cls(place, run)

    def __str__(self) -> str:
        return "%s#%s" % self if self.run else self.place


def _exists(place: str) -> bool:
    """Whether a local path exists, or a pattern fits one."""
    path = place[len(_LOCAL_URL) :] if place.startswith(_LOCAL_URL) else place
    # Unlike Path's, these take names that are too long, and absolute patterns.
    exists = os.path.exists(path)  # noqa: PTH110
    return exists or next(glob.iglob(path, recursive=True), None) is not None  # noqa: PTH207


class NamedRun(NamedTuple):
    id: str
    #: The same as the id where the user gave none.
    name: str

    @property
    def title(self) -> str:
        """The name and, for use in commands, the id."""
        return self.id if self.name == self.id else "%s #%s" % (self.name, self.id)


def index_of(wanted: str, runs: Sequence[NamedRun], place: str) -> int:
    """Return the index of the run that a user names.

    An id counts before a name, and both count before the start of one. Of several runs with the same id,
    the first counts.

    Args:
        wanted: the text after ``#``.
        runs: the runs of a place, the newest first.
        place: the place, for messages.

    Raises:
        NotFoundError: if no run fits, or several do.
    """
    with_id = [number for number, run in enumerate(runs) if run.id == wanted]
    if with_id:
        return with_id[0]
    matches = [number for number, run in enumerate(runs) if run.name == wanted]
    matches = matches or [
        number
        for number, run in enumerate(runs)
        if run.id.startswith(wanted) or run.name.startswith(wanted)
    ]
    if len({runs[number].id for number in matches}) > 1:
        names = _listed([runs[number] for number in matches])
        raise NotFoundError('%s: "%s" may be several runs: %s' % (place, wanted, names))
    if not matches:
        raise NotFoundError('%s: no such run: "%s"; %s' % (place, wanted, _hint(wanted, runs)))
    return matches[0]


def _hint(wanted: str, runs: Sequence[NamedRun]) -> str:
    names = [name for run in runs for name in (run.name, run.id)]
    listed = "there %s %s" % ("is" if len(runs) == 1 else "are", _listed(runs))
    return did_you_mean(wanted, names, listed)


def _listed(runs: Sequence[NamedRun]) -> str:
    names: List[str] = [run.title for run in runs[:_MOST_NAMED]]
    more = ["…"] if len(runs) > _MOST_NAMED else []
    return ", ".join(names + more)


# -- Convert names from logs to safe file names: never a path, hidden or empty --------------------


def safe_name(text: str) -> str:
    """Reduce ``text`` to letters, digits, dots, dashes and underscores, not starting with a dot."""
    return _UNSAFE.sub("-", text).strip(".-")[:_LONGEST] or "unnamed"
