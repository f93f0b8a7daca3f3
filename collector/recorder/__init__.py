"""The recorder: runs inside training.

Everything below this package imports the standard library and the user's own framework only,
runs on Python 3.8 and later, never raises into training and never starts a collective.
"""
