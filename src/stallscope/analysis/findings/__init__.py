"""Findings: problems that the logs show in addition to the ledger, each with evidence and advice."""

from .find import by_severity, find

__all__ = ["by_severity", "find"]
