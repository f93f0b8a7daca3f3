"""Advice: what to change, with a line to paste for the user's framework, and when not to."""
