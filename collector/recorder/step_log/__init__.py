"""The step log of a rank: its format, and its way to files or to records in a program's output.

It also decides which run the log belongs to, and which steps of a very long run are listed.
"""
