"""Measure a network's speed for allreduces, under the launcher of a training.

It runs on the workers, like the recorder: with the standard library and the user's framework only.
"""
