"""Loaders without training: measure one alone, save its times, or replace it by one batch.

Each framework's package says how its own loaders are run.
"""
