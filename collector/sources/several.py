"""Several places as one: the hosts of a job that shares no disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .base import Source, SourceFile


class Several(Source):
    """All files of several places; names begin with the number of their place, so that none hides
    another.
    """

    def __init__(self, places: Sequence[Source]) -> None:
        self._places = tuple(places)
        rest = len(places) - 1
        self.where = places[0].where + (f" and {rest} more" if rest else "")
        self.local = all(place.local for place in places)

    def files(self) -> list[SourceFile]:
        return [
            replace(file, name=f"{number}/{file.name}")
            for number, place in enumerate(self._places)
            for file in place.files()
        ]
