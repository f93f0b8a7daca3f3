"""Define what trainings and checks of gpu_check.py both use."""

from __future__ import annotations

#: The size of a fault: longer than any step without it.
FAULT_SECONDS = 0.03
#: How long a graph is captured.
CAPTURE_SECONDS = 0.005
#: The steps that torch.profiler records.
PROFILED = {"skip_first": 20, "wait": 0, "warmup": 3, "active": 30}
#: The steps of a profiled training.
PROFILED_STEPS = 60
