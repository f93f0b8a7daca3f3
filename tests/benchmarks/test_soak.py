"""The soak test distinguishes growth from fluctuation."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.benchmarks import benchmark

soak = benchmark("soak")


def samples(megabytes: list[float], descriptors: int = 8) -> list:
    return [soak.Sample(memory, descriptors) for memory in megabytes]


def held(checks: list) -> list[bool]:
    return [check.held for check in checks]


def test_memory_that_goes_up_and_down_is_flat() -> None:
    flat = samples([250.0 + index % 3 for index in range(40)])
    assert held(soak.of_process("training", flat, rows=10_000)) == [True, True]


def test_imports_at_the_start_are_not_a_leak() -> None:
    starting = samples([50.0 * index for index in range(10)] + [500.0] * 30)
    assert held(soak.of_process("training", starting, rows=10_000)) == [True, True]


def test_memory_that_grows_with_every_step_is_a_leak() -> None:
    growing = samples([250.0 + index for index in range(40)])
    assert held(soak.of_process("training", growing, rows=10_000)) == [False, True]


def test_a_process_that_holds_the_run_may_grow_with_it() -> None:
    growing = samples([250.0 + 2 * index for index in range(40)])
    assert held(soak.of_process("follower", growing, rows=15_000)) == [True, True]
    assert held(soak.of_process("dashboard", growing, rows=40_000)) == [True, True]
    assert held(soak.of_process("dashboard", growing, rows=15_000)) == [False, True]
    assert held(soak.of_process("dashboard", growing, rows=1_000)) == [False, True]


def test_descriptors_that_pile_up_are_a_leak() -> None:
    leaking = [soak.Sample(250.0, 8 + index) for index in range(40)]
    assert held(soak.of_process("follower", leaking, rows=1_000)) == [True, False]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="raise --minutes"):
        soak.of_process("training", samples([1.0, 2.0]), rows=1)


def test_a_log_is_compared_with_its_rows_and_the_recorders_count(tmp_path: Path) -> None:
    rows = b"step,0,0,29080,1849,1908,2451,2452,1,32,-1\n" * 100
    count = len(rows) + 300
    facts = b'#facts {"recorder_cost":{"bytes":%d}}\n' % count
    path = tmp_path / "rank-00000.0.0.steps.csv"
    path.write_bytes(b"#" * 300 + b"\n" + rows + facts)
    assert held(soak.of_log(path, steps=100)) == [True, True, True]
    assert held(soak.of_log(path, steps=101)) == [False, True, True]
    path.write_bytes(path.read_bytes() + b"epoch,1\n" * 1000)
    assert held(soak.of_log(path, steps=100)) == [True, True, False]


def test_an_ended_process_gives_no_sample() -> None:
    with pytest.raises(OSError, match="2147483"):
        soak.sample(2147483000)
