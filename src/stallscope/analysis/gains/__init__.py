"""Predict the gain of fixing each fault, and reach a verdict."""
