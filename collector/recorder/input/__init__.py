"""Loaders without training: measure one alone, save its times, replace it by one batch, or
fetch its next batches ahead.

Each framework's package says how its own loaders are run.
"""
