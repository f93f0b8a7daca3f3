"""Read the step lines of any trainer: a vocabulary, evidence, and a check.

- ``vocabulary`` has the words of figures, as data.
- ``figures`` finds the figures of lines that repeat, and reads them from all lines.
- ``evidence`` decides by the numbers what they mean, and whether anything confirms it.
"""
