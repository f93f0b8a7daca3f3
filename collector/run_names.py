"""Find the run that a user names: by its id, by its name, or by the start of either."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

from stallscope.errors import NotFoundError
from stallscope.formatting.suggestions import did_you_mean

_MOST_NAMED = 10


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
    found = [number for number, run in enumerate(runs) if run.name == wanted]
    found = found or [
        number
        for number, run in enumerate(runs)
        if run.id.startswith(wanted) or run.name.startswith(wanted)
    ]
    if len({runs[number].id for number in found}) > 1:
        names = _listed([runs[number] for number in found])
        raise NotFoundError('%s: "%s" may be several runs: %s' % (place, wanted, names))
    if not found:
        raise NotFoundError('%s: no such run: "%s"; %s' % (place, wanted, _hint(wanted, runs)))
    return found[0]


def _hint(wanted: str, runs: Sequence[NamedRun]) -> str:
    names = [name for run in runs for name in (run.name, run.id)]
    listed = "there %s %s" % ("is" if len(runs) == 1 else "are", _listed(runs))
    return did_you_mean(wanted, names, listed)


def _listed(runs: Sequence[NamedRun]) -> str:
    names: List[str] = [run.title for run in runs[:_MOST_NAMED]]
    more = ["…"] if len(runs) > _MOST_NAMED else []
    return ", ".join(names + more)
