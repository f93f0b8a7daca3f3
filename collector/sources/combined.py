"""Combine several places into one: the hosts of a job without a shared disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .base import Source, SourceFile


class CombinedSource(Source):
    """All files of several places; a file's name starts with the number of its place."""

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
