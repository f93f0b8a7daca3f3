"""Define what trainings and checks of gpu_check.py both use."""

from __future__ import annotations

#: The size of a fault: longer than any step without it.
FAULT_SECONDS = 0.03
#: How long a graph is captured.
CAPTURE_SECONDS = 0.005
#: Memory in all, what is asked for at first, and how much more each time, every so many steps.
MOST_BYTES, GROWING_BYTES, GROWS_BY, GROWS_EVERY = 4 * 10**9, 2 * 10**9, 10**7, 10
#: The steps that torch.profiler records.
PROFILED = {"skip_first": 20, "wait": 0, "warmup": 3, "active": 30}
#: The steps of a profiled training.
PROFILED_STEPS = 60
