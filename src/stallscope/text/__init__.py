"""Sentences about an analysis, the same in reports and on the dashboard."""
