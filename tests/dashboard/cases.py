"""The runs that the dashboard is shown: made-up jobs, written and really read."""

from __future__ import annotations

from dataclasses import replace

from support.step_logs import Job

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'

REAL = Job(
    ranks=4,
    steps=240,
    epochs=3,
    input_ms=9.0,
    validation_ms=300,
    checkpoint_ms=100,
    run_id="real",
    facts={"run_name": "resnet on pictures"},
)
SYNTHETIC = replace(
    REAL,
    input_ms=0.4,
    seed=2,
    run_id="synthetic",
    facts={"run_name": "resnet on noise", "synthetic": True},
)
ONE_RANK = replace(
    SYNTHETIC,
    ranks=1,
    seed=3,
    run_id="one-synthetic",
    facts={"run_name": "resnet on noise, one rank", "synthetic": True},
)
SLOW_RANK = replace(
    REAL,
    ranks=8,
    input_ms=1.0,
    slow={(2, "compute"): 12.0},
    hosts=("alpha", "beta"),
    clock_offset_ms=(0.0, 7000.0),
    run_id="slow",
    facts={"run_name": "resnet with a slow rank"},
)
HOSTILE = replace(
    SLOW_RANK,
    hosts=(IMAGE, "<b>beta</b>&amp;"),
    run_id=f"../../{SCRIPT}",
    facts={"run_name": SCRIPT, "model": IMAGE, "framework": f"{SCRIPT}\ud800"},
)
WITHOUT_STAMPS = replace(
    REAL,
    stamps=False,
    run_id="without-stamps",
    facts={"stamps": {"placed": [], "reason": f"the model runs eagerly {SCRIPT}"}},
)
THOUSAND = replace(
    REAL, ranks=1000, steps=60, epochs=2, slow={(700, "input"): 25.0}, run_id="thousand", facts={}
)

JOBS = {
    "one rank": replace(REAL, ranks=1, run_id="one"),
    "two ranks": replace(REAL, ranks=2, run_id="two"),
    "four ranks": REAL,
    "a slow rank": SLOW_RANK,
    "a thousand ranks": THOUSAND,
    "hostile names": HOSTILE,
    "without stamps": WITHOUT_STAMPS,
    "few steps": replace(REAL, steps=12, run_id="few"),
    "no steps": replace(REAL, steps=0, run_id="none"),
}
