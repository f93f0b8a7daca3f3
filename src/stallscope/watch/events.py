"""Events of runs that are watched, as lines and as JSON."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from stallscope.catalogue.values import moment
from stallscope.formatting.plain import plain

EventKind = Literal["holds", "ceased", "straggler", "completed", "unreadable", "readable"]


@dataclass(frozen=True)
class WatchEvent:
    """Something that has just happened to a run, or to the place of a run."""

    kind: EventKind
    at: datetime
    #: The place, without credentials.
    source: str
    #: One sentence or more.
    text: str
    run_id: str | None = None
    run_name: str | None = None
    condition: str | None = None
    #: The ranks and the stage of a straggler.
    straggler: str | None = None
    #: How the job hangs, as in the JSON report.
    stopped: dict[str, Any] | None = None
    #: Unique, so that a receiver can drop duplicates.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def about(self) -> tuple[str, str | None, str]:
        """Return a key: a later event with the same key replaces an earlier one."""
        topic = self.straggler or self.condition
        topic = topic or ("completed" if self.kind == "completed" else "place")
        return self.source, self.run_id, topic

    def line(self) -> str:
        """Return the event as one line of text."""
        return plain(f"{utc(self.at)} {self.text}")

    def content(self) -> dict[str, Any]:
        """Return the event as a value for JSON."""
        run = None if self.run_id is None else {"id": self.run_id, "name": self.run_name}
        return {
            "schema_version": 1,
            "id": self.id,
            "event": self.kind,
            "time": moment(self.at),
            "source": self.source,
            "run": run,
            "condition": self.condition,
            "text": plain(self.text),
            "stopped": self.stopped,
        }


def utc(at: datetime) -> str:
    """Write a moment to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
