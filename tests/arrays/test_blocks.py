"""Blocks of any size, in memory or on disk, give the results of whole arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stallscope.arrays import local_matrix
from stallscope.arrays.blocks import Array, Block, Matrix, of_each
from stallscope.arrays.local_matrix import LocalMatrix
from stallscope.arrays.memory import Allocator, in_memory, on_disk
from stallscope.arrays.types import Bools, Ints

STEPS, RANKS = 103, 11
RANDOM = np.random.default_rng(1)
VALUES = {
    name: np.asfortranarray(RANDOM.integers(0, 1000, (STEPS, RANKS)))
    for name in ("arrival", "input", "compute")
}
OTHER = VALUES["arrival"] - VALUES["input"] - VALUES["compute"]


@pytest.fixture(params=[1, 7, 40, 2**18])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    monkeypatch.setattr(local_matrix, "CELLS", request.param)
    return LocalMatrix.of(VALUES)


def _last(block: Block) -> Ints:
    return np.asarray(block["arrival"].max(axis=1))


def _sums(block: Block, name: str) -> Ints:
    return np.asarray(block[name].sum(axis=0))


def _plus_steps(block: Block, by: int) -> tuple[dict[str, Array], Ints]:
    return {"more": block["input"] + by}, block["input"].sum(axis=1)


def _sorted(block: Block) -> dict[str, Array]:
    return {"sorted": np.sort(block["input"], axis=0)}


def _doubled(block: Block, name: str) -> Array:
    return np.asarray(2 * block[name] + block.ranks)


def test_results_per_step_and_sums_are_those_of_the_whole(cells: Matrix) -> None:
    np.testing.assert_array_equal(cells.per_step(_last), VALUES["arrival"].max(axis=1))
    np.testing.assert_array_equal(cells.summed(_sums, "other"), OTHER.sum(axis=0))


@pytest.mark.parametrize("ranks", [None, [3], [2, 3, 4], [9, 0, 5]])
def test_results_per_rank_come_in_the_requested_order(
    cells: Matrix, ranks: Sequence[int] | None
) -> None:
    expected = VALUES["input"] if ranks is None else VALUES["input"][:, list(ranks)]
    sums = np.concatenate(cells.by_ranks(_sums, "input", ranks=ranks))
    np.testing.assert_array_equal(sums, expected.sum(axis=0))
    computed = cells.compute_by_ranks(_sorted, ranks=ranks)
    np.testing.assert_array_equal(computed.whole("sorted"), np.sort(expected, axis=0))


@pytest.mark.parametrize("allocate", [in_memory, on_disk])
def test_results_of_a_kernel_can_be_read_with_the_rest(cells: Matrix, allocate: Allocator) -> None:
    cells = LocalMatrix.of(VALUES, allocate)
    computed, sums = cells.compute_by_steps(_plus_steps, 5)
    np.testing.assert_array_equal(np.concatenate(sums), VALUES["input"].sum(axis=1))
    merged = cells.merged_with(computed)
    np.testing.assert_array_equal(merged.whole("more"), VALUES["input"] + 5)
    np.testing.assert_array_equal(merged.whole("arrival"), VALUES["arrival"])
    assert merged.only("more").whole("more").flags.f_contiguous


def test_lazy_arrays_follow_the_selected_steps(cells: Matrix) -> None:
    doubled = 2 * VALUES["input"] + np.arange(RANKS)
    seen = cells.with_computed(["input"], _doubled)
    np.testing.assert_array_equal(seen.whole("input"), doubled)
    np.testing.assert_array_equal(seen.columns("input", [7, 2]), doubled[:, [7, 2]])
    every_other = np.arange(STEPS) % 2 == 0
    np.testing.assert_array_equal(seen.take(every_other).whole("input"), doubled[every_other])


def test_lazy_arrays_are_computed_from_their_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_matrix, "CELLS", RANKS)
    monkeypatch.setattr(local_matrix, "_MOST_PIECES", 4)
    lengths: list[int] = []

    def doubled(block: Block, name: str) -> Array:
        lengths.append(block.shape[0])
        return _doubled(block, name)

    every_other = np.arange(STEPS) % 2 == 0
    LocalMatrix.of(VALUES).with_computed(["input"], doubled).take(every_other).summed(
        _sums, "input"
    )
    assert set(lengths) == {1}


@pytest.mark.parametrize(
    "chosen",
    [
        np.arange(STEPS) >= 30,
        np.isin(np.arange(STEPS) // 25, (0, 2)),
        np.arange(STEPS) % 3 == 1,
        np.zeros(STEPS, bool),
    ],
    ids=["the end", "stretches", "one in three", "none"],
)
def test_some_of_the_steps_and_more_after_them(cells: Matrix, chosen: Bools) -> None:
    some = cells.take(chosen)
    assert some.shape == (chosen.sum(), RANKS)
    joined = some.followed_by([cells])
    expected = np.concatenate([VALUES["arrival"][chosen], VALUES["arrival"]])
    np.testing.assert_array_equal(joined.per_step(_last), expected.max(axis=1))
    np.testing.assert_array_equal(joined.whole("arrival"), expected)
    again = joined.take(np.arange(len(expected)) % 2 == 0)
    np.testing.assert_array_equal(again.columns("arrival", [4]), expected[::2, [4]])


def test_single_cells_rows_and_columns(cells: Matrix) -> None:
    steps, ranks = RANDOM.integers(0, STEPS, 50), RANDOM.integers(0, RANKS, 50)
    np.testing.assert_array_equal(cells.at("other", steps, ranks), OTHER[steps, ranks])
    some = np.array([0, 5, 6, 99])
    np.testing.assert_array_equal(cells.rows("other", some), OTHER[some])
    np.testing.assert_array_equal(cells.rows("input", some[:0]), VALUES["input"][:0])
    np.testing.assert_array_equal(cells.columns("other", [8, 1]), OTHER[:, [8, 1]])


@pytest.mark.parametrize("allocate", [in_memory, on_disk])
def test_blocks_at_once_fill_the_same_arrays(
    allocate: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_matrix, "CELLS", RANKS)
    for _ in range(20):
        computed, _ = LocalMatrix.of(VALUES, allocate).compute_by_steps(_plus_steps, 5)
        np.testing.assert_array_equal(computed.whole("more"), VALUES["input"] + 5)


@pytest.mark.parametrize("longest", [2**31 - 1, 2**31])
def test_times_are_exact_however_they_are_stored(longest: int) -> None:
    """Times below 2 seconds take half the memory, until one is longer."""
    shape = (1000, 600)
    arrival = np.random.default_rng(1).integers(0, 2**31, shape)
    # In the last block.
    arrival[-1, -1] = longest
    whole = {"arrival": arrival, "input": arrival // 3, "compute": arrival // 2}
    matrix = LocalMatrix.of({name: np.asfortranarray(array) for name, array in whole.items()})
    computed, _ = matrix.compute_by_steps(_stages)
    assert isinstance(computed, LocalMatrix)
    fits = longest < 2**31
    assert [array.dtype.itemsize for array in computed.arrays] == [4 if fits else 8, 4, 4]
    whole["other"] = arrival - arrival // 3 - arrival // 2
    for name, array in whole.items():
        np.testing.assert_array_equal(np.concatenate(computed.by_steps(_all_of, name)), array)
        np.testing.assert_array_equal(computed.columns(name, [0, 599]), array[:, [0, 599]])
        np.testing.assert_array_equal(computed.rows(name, np.array([2, 999])), array[[2, 999]])
        assert computed.at(name, np.array([999]), np.array([599])).tolist() == [array[-1, -1]]
        assert computed.whole(name).dtype == np.int64


@pytest.mark.parametrize("sizes", [[1], [4], [3, 3, 3], [1, 5, 2]])
def test_groups_of_any_sizes_are_reduced_to_a_row_each(sizes: list[int]) -> None:
    values = np.random.default_rng(sum(sizes)).integers(-99, 99, (sum(sizes), 7))
    ends = np.cumsum(sizes)
    groups = [values[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    largest = of_each(np.maximum, values, ends - sizes)
    np.testing.assert_array_equal(largest, [group.max(axis=0) for group in groups])


def _stages(block: Block) -> tuple[dict[str, Array], None]:
    return {name: block[name] for name in ("arrival", "input", "compute")}, None


def _all_of(block: Block, name: str) -> Array:
    assert block[name].dtype == np.int64
    return block[name]
