"""A finding: something about the run that its owner should know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """Something about the run that its owner should know."""

    code: str
    severity: Severity
    title: str
    evidence: str
    advice: str
