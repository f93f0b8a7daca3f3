"""Compute on arrays of steps × ranks, in memory or in mapped files, with their statistics."""
