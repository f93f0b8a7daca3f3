"""Horovod Timelines among other logs: too large to read there."""

from __future__ import annotations

from typing import ClassVar

from ..base import CompanionFormat
from .reader import is_timeline


class HorovodTimelineFormat(CompanionFormat):
    name: ClassVar[str] = "horovod-timeline"
    title: ClassVar[str] = "a Horovod Timeline"
    note: ClassVar[str | None] = "stallscope tune reads it"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return is_timeline(head)
