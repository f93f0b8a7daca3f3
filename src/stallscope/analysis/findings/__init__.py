"""Findings: what the logs say about the run besides the ledger, each with evidence and advice."""

from .find import by_severity, find

__all__ = ["by_severity", "find"]
