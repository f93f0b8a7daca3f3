"""Arrays are in memory, or in files if they do not fit; errors show what to do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stallscope.arrays import memory
from stallscope.arrays.memory import (
    BYTES_PER_ROW,
    Allocator,
    allocator_for,
    in_memory,
    memory_to_give,
    on_disk,
    share_memory,
)
from stallscope.errors import UnwritableError, UsageError


@pytest.mark.parametrize(
    ("expected", "bytes_"),
    [("3GB", 3_000_000_000), ("1.5 gb", 1_500_000_000), ("800MB", 800_000_000)],
)
def test_the_configured_memory_counts(
    expected: str, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLSCOPE_MEMORY", expected)
    assert memory_to_give() == bytes_
    assert allocator_for(bytes_ // BYTES_PER_ROW) is in_memory
    assert allocator_for(bytes_ // BYTES_PER_ROW + 1) is on_disk


def test_the_default_is_the_available_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STALLSCOPE_MEMORY", raising=False)
    assert allocator_for(1000) is in_memory
    assert allocator_for(10**15) is on_disk


def test_for_a_small_run_the_available_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STALLSCOPE_MEMORY", raising=False)
    monkeypatch.setattr(memory, "memory_to_give", lambda: pytest.fail("it was read"))
    assert allocator_for(300_000) is in_memory


@pytest.mark.parametrize("kind", [in_memory, on_disk])
def test_allocated_arrays_are_zero(kind: Allocator) -> None:
    for _ in range(2):
        array = kind((300, 40), np.int64)
        assert not array.any()
        array.fill(7)


def test_a_containers_limit_is_the_available_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STALLSCOPE_MEMORY", raising=False)
    limit, used = tmp_path / "limit", tmp_path / "used"
    monkeypatch.setattr(memory, "_OF_CONTAINERS", ((limit, used),))
    whole = memory_to_give()
    limit.write_text("max\n")
    used.write_text("1000000\n")
    assert memory_to_give() == pytest.approx(whole, rel=0.2)
    limit.write_text("3000000\n")
    assert memory_to_give() == 1_000_000


def test_processes_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLSCOPE_MEMORY", "3GB")
    share_memory(4)
    assert memory_to_give() == 750_000_000


@pytest.mark.parametrize("expected", ["3", "much", "-1GB", "GB"])
def test_an_invalid_amount_is_named_in_the_error(
    expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLSCOPE_MEMORY", expected)
    with pytest.raises(UsageError, match=f"STALLSCOPE_MEMORY={expected}.*3GB or 800MB"):
        memory_to_give()


def test_files_are_ordered_by_rank_and_removed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    array = on_disk((1000, 7), np.int64)
    array[:] = np.arange(7)
    assert array.flags.f_contiguous
    assert array.sum() == 21_000
    assert list(tmp_path.iterdir()) == []
    assert on_disk((0, 7), bool).shape == (0, 7)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved here")
def test_a_full_disk_is_an_error_that_shows_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(UnwritableError, match=r"no space for .* set TMPDIR to a folder with more"):
        on_disk((2**40, 2**10), np.int64)
