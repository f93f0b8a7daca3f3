"""Waits in collectives belong to the step that the next reduction ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from stallscope.collector.recorder.pytorch import waits
from stallscope.collector.recorder.pytorch.waits import RoutedRows, Waits, WaitsByGroup


def counting(timestamp: Callable[[], Any] = lambda: None) -> Waits:
    return Waits(lambda: 0, timestamp, print)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is ten nanoseconds later at each look."""
    ticks = count(0, 10)
    monkeypatch.setattr(waits, "monotonic_ns", lambda: next(ticks))


def test_a_collective_returns_what_it_returned_and_its_time_counts() -> None:
    counter = counting()
    assert counter.timed(lambda first, second: (counter.since, first + second))(1, second=2) == (
        0,
        3,
    )
    assert counter.since is None
    assert counter.before(1) == (10, ())


def test_a_collective_that_raises_counts_as_well() -> None:
    counter = counting()
    with pytest.raises(ZeroDivisionError):
        counter.timed(lambda: 1 / 0)()
    assert (counter.since, counter.before(1)) == (None, (10, ()))


def test_each_step_has_its_own_waits() -> None:
    counter = counting()
    collective = counter.timed(lambda: None)
    collective()
    collective()
    assert counter.before(1) == (20, ())
    collective()
    # Another reduction with the same cause ends the same step.
    assert counter.before(1) == (30, ())
    collective()
    assert counter.before(2) == (10, ())


def test_a_collective_inside_of_another_one_counts_once() -> None:
    counter = counting()
    inner = counter.timed(lambda: None)
    counter.timed(inner)()
    assert counter.before(1) == (10, ())


def test_a_collective_of_another_thread_does_not_count() -> None:
    counter = counting()
    thread = threading.Thread(target=counter.timed(lambda: None))
    thread.start()
    thread.join()
    assert counter.before(1) == (0, ())


def test_a_listener_receives_each_collective_with_its_iteration() -> None:
    counter, heard = counting(), []
    counter.on_wait = lambda *times: heard.append(times)
    counter.timed(lambda: None)()
    counter.timed(lambda work: None)("work")
    assert heard == [(0, 10, 0, None), (20, 30, 0, "work")]
    assert counter.before(1) == (0, ())


def test_on_a_device_its_timestamps_are_kept() -> None:
    stamps = count(100)
    counter = counting(lambda: next(stamps))
    counter.timed(lambda: None)()
    assert counter.before(1) == (0, ((100, 101),))
    counter.timed(lambda: None)()
    assert counter.before(2) == (0, ((102, 103),))


def test_collectives_outside_of_steps_do_not_count() -> None:
    between = Waits(lambda: None, lambda: None, print)
    between.timed(lambda: None)()
    assert between.before(1) == (0, ())


def test_a_batch_that_training_fetches_in_an_iteration_is_input() -> None:
    fetched: list[int] = []
    counter = Waits(lambda: 0, lambda: None, fetched.append)
    # A wait inside is for a rank that reads the batch: it is input as well.
    fetch = counter.fetches(counter.timed(lambda: (counter.is_fetching, counter.iteration)))
    assert fetch() == (True, None)
    assert (counter.is_fetching, counter.iteration) == (False, 0)
    assert fetched == [30]
    assert counter.before(1) == (0, ())
    with pytest.raises(StopIteration):
        counter.fetches(iter([]).__next__)()
    assert (counter.is_fetching, fetched) == (False, [30, 10])


@pytest.mark.parametrize("before", [None, 0])
def test_a_batch_of_the_loop_itself_is_not_counted_twice(before: int | None) -> None:
    iterations: list[int | None] = [before]
    fetched: list[int] = []
    counter = Waits(lambda: iterations[-1], lambda: None, fetched.append)
    counter.fetches(lambda: iterations.append(7))()
    assert fetched == []


class Group:
    """Stands for a process group, which needs other processes."""

    def __init__(self, description: str) -> None:
        self.group_desc = description

    def allreduce(self) -> object:
        return object()

    def _allgather_base(self) -> object:
        return object()

    def alltoall_base(self, *_: object) -> object:
        return object()


#: By name.
GROUPS = {"7": Group("mesh_ep")}


class Packet:
    """Stands for torch's packet of an operator's overloads, which Python calls."""

    def __init__(self, operator: Callable[..., Any]) -> None:
        self._op = operator

    def __call__(self, *args: Any) -> Any:
        return self._op(*args)

    def __hash__(self) -> int:
        return hash(self._op)


def test_waits_are_added_up_by_kind_and_group() -> None:
    sums = WaitsByGroup({})
    undo = sums.watch(Group, None, GROUPS.get)
    replicas, everyone = Group("mesh_dp"), Group("default_pg")
    first, second, third = replicas.allreduce(), replicas._allgather_base(), everyone.allreduce()
    # In any order, and without those of the first steps.
    for work, ns, counts in (
        (third, 5000, True),
        (second, 9000, False),
        (first, 1000, True),
        (replicas.allreduce(), 2000, True),
    ):
        sums.waited(work, ns, counts)
    waits = [
        {"kind": "all_reduce", "group": "all ranks", "waits": 1, "waited_us": 5},
        {"kind": "all_reduce", "group": "dp", "waits": 2, "waited_us": 3},
    ]
    assert sums.fact(2) == {"steps": 2, "waits": waits}
    for restore in undo:
        restore()
    assert "__wrapped__" not in vars(Group.allreduce)
    assert sums.fact(0) is None


def test_a_wait_inside_of_a_function_is_for_what_started_last() -> None:
    sums = WaitsByGroup({})
    undo = sums.watch(Group, None, GROUPS.get)
    Group("mesh_tp").allreduce()
    sums.waited("what another library returned", 1000, True)
    fact = sums.fact(1)
    assert fact is not None
    assert [entry["group"] for entry in fact["waits"]] == ["tp"]
    for restore in undo:
        restore()


def test_groups_without_a_name_in_torch_have_a_given_one() -> None:
    stages = Group("undefined")
    sums = WaitsByGroup({id(stages): "pp"})
    undo = sums.watch(Group, None, GROUPS.get)
    sums.waited(stages.allreduce(), 1000, True)
    fact = sums.fact(1)
    assert fact is not None
    assert [entry["group"] for entry in fact["waits"]] == ["pp"]
    for restore in undo:
        restore()


def test_a_group_that_cannot_be_named_reduces_all_the_same() -> None:
    class Nameless(Group):
        @property
        def group_desc(self) -> str:
            raise RuntimeError("the process group is gone")

        @group_desc.setter
        def group_desc(self, _: str) -> None:
            pass

    sums = WaitsByGroup({})
    undo = sums.watch(Group, None, GROUPS.get)
    sums.waited(Nameless("dp").allreduce(), 1000, True)
    fact = sums.fact(1)
    assert fact is not None
    assert [entry["group"] for entry in fact["waits"]] == ["unknown"]
    for restore in undo:
        restore()


def test_operators_of_functional_collectives_are_noted_by_their_groups_name() -> None:
    class Operators:
        all_to_all_single = Packet(lambda *_: "tensor")

    packet, sums = Operators.all_to_all_single, WaitsByGroup({})
    before, known = packet._op, {packet: "found"}
    exchanged: list[tuple[Any, ...]] = []
    sums.on_all_to_all = lambda *args: exchanged.append(args)
    undo = sums.watch(Group, Operators, GROUPS.get)
    sums.waited(packet("input", [1, 2], [3, 0], "7"), 1000, True)
    fact = sums.fact(1)
    assert fact is not None
    assert [(waits["kind"], waits["group"]) for waits in fact["waits"]] == [("all_to_all", "ep")]
    # Without numbers of rows, all ranks exchange as many.
    Group("mesh_ep").alltoall_base("output", "input", [], [], None)
    Group("mesh_ep").alltoall_base("output", "input", [4], [5], None)
    assert exchanged == [("input", [1, 2], [3, 0]), ("input", [4], [5])]
    # What torch knows of an operator is found by its hash.
    assert known[packet] == "found"
    for restore in undo:
        restore()
    assert packet._op is before


def test_rows_that_return_are_not_counted_again() -> None:
    routed, received, sent = RoutedRows(), (30, 50), (20, 20)
    for _ in range(2):
        # Two layers, forward and backward.
        for way in (received, sent), (sent, received):
            routed.exchange(*way)
            routed.exchange((5, 7), (6, 6)) if way[0] is received else routed.exchange(
                (6, 6), (5, 7)
            )
    assert routed.rows == 2 * (80 + 12)
    routed.begin_step()
    assert routed.rows == 0


def test_a_forward_pass_that_is_made_again_without_its_return_ends_with_the_step() -> None:
    routed = RoutedRows()
    routed.exchange((3, 1), (2, 2))
    routed.begin_step()
    routed.exchange((2, 2), (3, 1))
    assert routed.rows == 4


def test_equal_numbers_of_rows_are_not_routed() -> None:
    routed = RoutedRows()
    routed.exchange((4, 4), (4, 4))
    assert routed.rows is None
