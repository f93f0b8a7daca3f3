"""Predict what fixing each fault gains, and reach a verdict."""
