"""Verdicts, fixes and numbers in words: the same sentences in reports and on the dashboard."""
