"""Measure time and memory of parsers on one endless line (no test, because it takes minutes).

    PYTHONPATH=tools:tests python -m fuzz.one_line [--megabytes 100] [--only TARGET…]

Prints a row for every target and filling: CPU seconds, and the peak megabytes beyond the input.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from .targets import TARGETS

_BEGINNINGS = {
    "step-log": b'#stallscope 1 {"rank": 0}\nkind,step,begin_us,end_us\n',
    "mlflow-metrics": b'{"run_id": "a", "metrics": ',
    "timeline": b'[\n{"ph": "B", "name": "',
    "autotune": b"cycle_time_ms,tensor_fusion_threshold,score\n",
    "flight-recorder": b"\x80\x02}(",
    "input-times": b'{"stallscope_input": ',
    "netcheck": b'{"stallscope_netcheck": ',
}
_FILLINGS = {
    "digits": b"0123456789",
    "tags": b"[1,0]<stdout>:[1,1]<stdout>:x",
    "numbered tags": b"[0] ",
    "open brackets": b"[",
    "quotes": b'"',
    "backspaces": b"\b",
    "carriage returns": b"\r",
    "blanks": b" ",
    "NULs": b"\0",
    "bars": b"1/3 [=>..........] - ETA: 3s - loss: 2.28\b\b\b\b",
    "epochs": b"Epoch 1/3 3/3 - 17s - loss: 1.9 ",
    "records": b"stallscope:1:0123456789abcdef:rank-00000.0.0:0:00000000:AAAA",
    "events": b'{"ph": "B", "name": "A", "ts": 1, "pid": 1}',
    "stalls": b"Missing ranks: 1: [a, 1: [b, ",
    "stamps": b"2026-11-21 02:28:01,123 ",
    "rows": b"step,1,2,3,",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.one_line", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--filling", choices=_FILLINGS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.filling is not None:
        print(_row(options.only[0], options.filling, options.megabytes))
        return
    print("| target | one line of | CPU seconds | MB beyond it |\n| --- | --- | ---: | ---: |")
    for target in options.only:
        for filling in _FILLINGS:
            # One process each: a process's peak memory never falls.
            words = ["--megabytes", str(options.megabytes), "--only", target, "--filling", filling]
            process = subprocess.run(
                [sys.executable, "-m", "fuzz.one_line", *words],
                capture_output=True,
                text=True,
                check=False,
            )
            row = (
                process.stdout.strip()
                or f"| {target} | {filling} | failed: {process.stderr[-500:]} | |"
            )
            print(row, flush=True)


def _row(target: str, filling: str, megabytes: int) -> str:
    text = _FILLINGS[filling]
    size = megabytes * 1_000_000
    data = _BEGINNINGS.get(target, b"") + text * (size // len(text))
    before = _most_memory()
    begin = time.process_time()
    TARGETS[target](data)
    took = time.process_time() - begin
    return f"| {target} | {filling} | {took:.1f} | {(_most_memory() - before) / 1e6:.0f} |"


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
