"""A finding about a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """A problem or notable fact of a run, with evidence and advice."""

    code: str
    severity: Severity
    title: str
    evidence: str
    advice: str
