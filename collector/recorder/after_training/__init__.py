"""The end of training: print a summary on rank 0, and gather the logs of all ranks there.

The rank's own mean times, which the summary falls back to, are summed during training.
"""
