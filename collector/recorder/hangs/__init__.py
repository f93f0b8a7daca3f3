"""Steps that take too long: the progress of the step in flight, and the stacks of all threads.

Everything here runs on the recorder's own thread.
"""
