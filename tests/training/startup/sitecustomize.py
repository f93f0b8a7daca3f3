"""Let ranks search for garbage rarely, and not at their end: Python runs this file when it starts.

A framework is hundreds of thousands of objects that stay. Searching them, during the import and when the
process ends, is two fifths of the CPU time of a process that only imports TensorFlow, and a third for
PyTorch. The scripts of docs/recorders/ and docs/tutorial.md run without this file, as users start them.
"""

import atexit
import gc

gc.set_threshold(100_000)
# What is registered later runs earlier: recorders and frameworks have ended before.
atexit.register(gc.freeze)
