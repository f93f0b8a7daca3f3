"""Count the time that a rank spends in collectives: before its gradients are ready, and by group.

In a collective a rank waits for the slowest one: then all ranks' gradients are ready at the same time,
and all look equally slow. Each rank's own work is the rest: see ``loop_steps.Reduction.waited``.
"""

from __future__ import annotations

import functools
import sys
import threading
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ..guards import patch
from ..job.world import torch_distributed

Function = Callable[..., Any]
#: Timestamps of a device before and after each collective.
Pairs = Tuple[Tuple[Any, Any], ...]

#: A kind of collective, and the name of its process group.
Collective = Tuple[str, str]

#: What torch describes a group with that has no name.
NO_NAME = "undefined"

# A bound for steps on a device that never end.
_MOST_PAIRS = 4096
# A bound for collectives that nothing waits for.
_MOST_STARTED = 4096
#: The name of the group of all ranks.
ALL_RANKS = "all ranks"
_UNKNOWN = "unknown"
# The methods of process groups that start collectives, in all versions of torch.
_METHODS = {
    "all_reduce": ("allreduce", "allreduce_coalesced"),
    "all_gather": (
        *("allgather", "_allgather_base", "all_gather_single", "all_gather_single_coalesced"),
        *("allgather_coalesced", "allgather_into_tensor_coalesced"),
    ),
    "reduce_scatter": (
        *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"),
        *("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    ),
    "all_to_all": ("alltoall", "alltoall_base", "all_to_all_single"),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "barrier": ("barrier",),
    "send": ("send",),
    "receive": ("recv", "recv_anysource"),
}
# The latest groups of a process: a job has fewer dimensions.
_MOST_GROUPS = 32
# torch's operators of functional collectives, which DTensors use, with the position of the group.
_OPERATORS = {
    "all_reduce": ("all_reduce", 2),
    "all_gather_into_tensor": ("all_gather", 2),
    "reduce_scatter_tensor": ("reduce_scatter", 3),
    "all_to_all_single": ("all_to_all", 3),
    "broadcast": ("broadcast", 2),
}
# The most all-to-alls whose rows are not returned yet.
_MOST_SENT = 64


class Waits:
    """The time in collectives since the reduction of the previous step.

    Args:
        iteration_began: returns when the running iteration of the training loop began; None between
            iterations, and until a batch is there: such collectives do not count.
        timestamp: takes a timestamp of an asynchronous device; None where the host itself waits.
        fetched: receives the nanoseconds that the running iteration waited for one more batch.
    """

    __slots__ = (
        "_cause",
        "_fetched",
        "_iteration_began",
        "_ns",
        "_pairs",
        "_settled",
        "_thread",
        "_timestamp",
        "is_fetching",
        "on_wait",
        "since",
    )

    def __init__(
        self,
        iteration_began: Callable[[], Optional[int]],
        timestamp: Callable[[], Any],
        fetched: Callable[[int], None],
    ) -> None:
        self._iteration_began = iteration_began
        self._timestamp = timestamp
        self._fetched = fetched
        self._ns = 0
        self._pairs: List[Tuple[Any, Any]] = []
        # The latest reduction's cause, and what belongs to its step.
        self._cause: Optional[int] = None
        self._settled = (0, 0)
        # A thread that saves a checkpoint waits beside training.
        self._thread = threading.get_ident()
        #: Receives begin, end and iteration of each collective, and what it waits for, instead of
        #: counting it.
        self.on_wait: Optional[Callable[[int, int, int, Any], None]] = None
        #: Since when the current collective has waited; None outside of collectives.
        self.since: Optional[int] = None
        #: Whether training waits for a batch that it fetches in the middle of an iteration.
        self.is_fetching = False

    @property
    def iteration(self) -> Optional[int]:
        """Return when the running iteration began, once its batch is there."""
        return None if self.is_fetching else self._iteration_began()

    def fetches(self, fetch: Function) -> Function:
        """Return the function that fetches a batch with its time counted as input."""

        @functools.wraps(fetch)
        def fetching(*args: Any, **kwargs: Any) -> Any:
            iteration, began = self.iteration, monotonic_ns()
            self.is_fetching = True
            try:
                return fetch(*args, **kwargs)
            finally:
                self.is_fetching = False
                # What it fetches from may be the loop, which has begun another iteration.
                if iteration is not None and iteration == self.iteration:
                    self._fetched(monotonic_ns() - began)

        return fetching

    def timed(self, collective: Function) -> Function:
        """Return the function with its time counted, unless it runs inside of another one."""

        @functools.wraps(collective)
        def waits(*args: Any, **kwargs: Any) -> Any:
            if self.since is not None or threading.get_ident() != self._thread:
                return collective(*args, **kwargs)
            before = self._timestamp()
            self.since = began = monotonic_ns()
            try:
                return collective(*args, **kwargs)
            finally:
                self.add(began, before, args[0] if args else None)

        return waits

    def add(self, began: int, device_began: Any = None, awaited: Any = None) -> None:
        """Count a collective that ends now; ``awaited`` is the work or tensor that it waits for."""
        ended, self.since = monotonic_ns(), None
        iteration = self.iteration
        if iteration is None:
            return
        if self.on_wait is not None:
            self.on_wait(began, ended, iteration, awaited)
        else:
            device_ended = None if device_began is None else self._timestamp()
            if device_ended is None:
                self._ns += ended - began
            elif len(self._pairs) < _MOST_PAIRS:
                self._pairs.append((device_began, device_ended))

    def before(self, cause: Optional[int]) -> Tuple[int, Pairs]:
        """Return the waits before a reduction: nanoseconds, and collectives on a device.

        A reduction with the ``cause`` of the previous one belongs to the same step.
        """
        if cause is None or cause != self._cause:
            ns, pairs = self._settled
            self._ns -= ns
            del self._pairs[:pairs]
            self._cause = cause
        self._settled = self._ns, len(self._pairs)
        return self._ns, tuple(self._pairs)


class _TimedBatches:
    """An iterator whose batches are timed as input; all else is that of the iterator itself."""

    def __init__(self, batches: Any, waits: Waits) -> None:
        self._batches = batches
        self._next = waits.fetches(batches.__next__)

    def __iter__(self) -> "_TimedBatches":
        return self

    def __next__(self) -> Any:
        return self._next()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def timed_batches(batches: Any, waits: Waits) -> Any:
    """Return the iterator with its batches timed as input; what is no iterator is returned as it is."""
    return _TimedBatches(batches, waits) if hasattr(batches, "__next__") else batches


class WaitsByGroup:
    """The time of waits by kind of collective and process group, added up over steps.

    Args:
        names: the names of groups that torch does not know, by the addresses of the groups.
    """

    __slots__ = ("_latest", "_names", "_started", "_sums", "on_all_to_all")

    def __init__(self, names: Mapping[int, str]) -> None:
        # By work or tensor; a wait takes its entry.
        self._started: Dict[int, Collective] = {}
        # What is started last is waited for, where the wait is inside of a function.
        self._latest: Optional[Collective] = None
        # By the address of a process group, which lives as long as the job.
        self._names = {**names}
        self._sums: Dict[Collective, List[int]] = {}
        #: Receives what an all-to-all sends, and the rows that it receives from and sends to each rank.
        self.on_all_to_all: Callable[[Any, Any, Any], None] = _ignored

    def waited(self, awaited: Any, ns: int, counts: bool) -> None:
        """Add a wait for this work or tensor; only take note of it unless it ``counts``."""
        collective = self._started.pop(id(awaited), None) or self._latest
        if counts and collective is not None:
            sums = self._sums.setdefault(collective, [0, 0])
            sums[0] += 1
            sums[1] += ns

    def fact(self, steps: int) -> Optional[Dict[str, Any]]:
        """Describe the waits of so many steps; None without any."""
        if not self._sums or steps <= 0:
            return None
        # Another thread writes this.
        sums = sorted(self._sums.copy().items())
        columns = ("kind", "group", "waits", "waited_us")
        rows = [(*collective, waits, ns // 1000) for collective, (waits, ns) in sums]
        return {"steps": steps, "waits": [dict(zip(columns, row)) for row in rows]}

    def watch(
        self, group_class: Any, operators: Any, group_of_name: Optional[Callable[[str], Any]]
    ) -> List[Callable[[], None]]:
        """Note what is started; return the functions that end that.

        Args:
            group_class: torch's class of process groups.
            operators: torch's operators of functional collectives; None without.
            group_of_name: returns the process group with a name; None where torch cannot.
        """
        undo = [
            patch(group_class, name, self._noting(getattr(group_class, name), kind))
            for kind, names in _METHODS.items()
            for name in names
            if hasattr(group_class, name)
        ]
        for name, (kind, position) in _OPERATORS.items():

            def noting(operator: Function, kind: str = kind, position: int = position) -> Function:
                return self._noting_operator(operator, kind, position, group_of_name)

            undo += watch_operator(operators, name, noting)
        return undo

    def _noting(self, method: Function, kind: str) -> Function:
        """Return the method of a process group with what it starts noted."""
        exchanges = kind == "all_to_all"

        @functools.wraps(method)
        def start(group: Any, *args: Any, **kwargs: Any) -> Any:
            collective = self._latest = kind, self._name(group)
            if exchanges:
                self._exchanged(*args[1:4])
            work = method(group, *args, **kwargs)
            self._note(work, collective)
            return work

        return start

    def _noting_operator(
        self,
        operator: Function,
        kind: str,
        position: int,
        group_of_name: Any,
    ) -> Function:
        """Return a function that calls the operator, and notes what it starts."""
        exchanges = kind == "all_to_all"

        def start(*args: Any, **kwargs: Any) -> Any:
            group = args[position] if len(args) > position else kwargs.get("group_name")
            collective = self._latest = kind, self._name_of(group, group_of_name)
            if exchanges:
                self._exchanged(*args[:3])
            result = operator(*args, **kwargs)
            self._note(result, collective)
            return result

        return start

    def _exchanged(self, sent: Any = None, from_ranks: Any = None, to_ranks: Any = None) -> None:
        """Pass on what an all-to-all of one tensor sends; those of lists have no numbers of rows."""
        if from_ranks and to_ranks:
            try:
                self.on_all_to_all(sent, from_ranks, to_ranks)
            except Exception:  # no error may reach training
                self.on_all_to_all = _ignored

    def _note(self, awaited: Any, collective: Collective) -> None:
        if len(self._started) >= _MOST_STARTED:
            self._started.clear()
        self._started[id(awaited)] = collective

    def _name_of(self, group: Any, group_of_name: Any) -> str:
        """Return the name of what an operator takes for a group."""
        try:
            return self._name(group_of_name(group) if isinstance(group, str) else group)
        except Exception:  # no error may reach training
            return _UNKNOWN

    def _name(self, group: Any) -> str:
        name = self._names.get(id(group))
        if name is None:
            try:
                name = group_name(group)
            except Exception:  # no error may reach training
                name = _UNKNOWN
            self._names[id(group)] = name
        return name


def _ignored(*_: Any) -> None:
    pass


class RoutedRows:
    """The rows that a rank receives in a step to compute on them: the tokens of its experts.

    Training passes their numbers to all-to-alls as integers of the host, so that no tensor is read.
    """

    __slots__ = ("_is_uneven", "_sent", "_step_rows")

    def __init__(self) -> None:
        self._step_rows = 0
        # The numbers of rows of all-to-alls that have not been returned: those received, and those sent.
        self._sent: List[Tuple[Tuple[int, ...], Tuple[int, ...]]] = []
        # Until a rank has received different numbers, nothing is routed.
        self._is_uneven = False

    @property
    def rows(self) -> Optional[int]:
        """Return the rows of the step so far; None if all ranks have always exchanged as many."""
        return self._step_rows if self._is_uneven else None

    def begin_step(self) -> None:
        """Count a new step. What was not returned never will be, as in forward passes made again."""
        self._step_rows = 0
        self._sent.clear()

    def exchange(self, received: Tuple[int, ...], sent: Tuple[int, ...]) -> None:
        """Count received rows, unless they return from where they were sent to.

        An expert's results go back the way on which its tokens came; gradients go both ways again.
        """
        back = sent, received
        if back in self._sent:
            self._sent.remove(back)
            return
        if len(self._sent) < _MOST_SENT:
            self._sent.append((received, sent))
        self._step_rows += sum(received)
        if not self._is_uneven:
            self._is_uneven = len({*received, *sent}) > 1


# -- Watch torch's operators -----------------------------------------------------------------------


class _WatchedOperator:
    """Stands for an operator in the packet of its overloads, which is found by the operator's hash."""

    def __init__(self, operator: Any, call: Function) -> None:
        self._operator = operator
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def __hash__(self) -> int:
        return hash(self._operator)

    def __eq__(self, operator: object) -> bool:
        return bool(self._operator == operator)


def watch_operator(
    operators: Any, name: str, watched: Callable[[Function], Function]
) -> List[Callable[[], None]]:
    """Let Python call ``watched(operator)`` for an operator; return the functions that end that.

    Programs import the functions around it by name. What a compiler traces calls the operator's
    overloads, and is not seen; nor are operators of versions of torch that have other packets.
    """
    packet = getattr(operators, name, None)
    operator = getattr(packet, "_op", None)
    if operator is None:
        return []
    return [patch(packet, "_op", _WatchedOperator(operator, watched(operator)))]


def group_name(group: Any) -> str:
    """Return the name of a process group, as DeviceMesh or Megatron gives it."""
    name = str(getattr(group, "group_desc", NO_NAME)).replace("mesh_", "", 1)
    return ALL_RANKS if name == "default_pg" else name


def process_groups(given: Mapping[int, str]) -> Optional[List[Dict[str, Any]]]:
    """Return this rank's groups of evenly spaced ranks, as DeviceMesh or Megatron names them.

    None where torch hides them.

    Args:
        given: the names of groups that torch does not know, by their addresses.
    """
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    members = getattr(world, "pg_group_ranks", None)
    distributed = torch_distributed()
    if members is None or distributed is None:
        return None
    groups: Dict[Tuple[str, int, int, int], None] = {}
    for group, ranks_of_group in list(members.items())[-_MOST_GROUPS:]:
        ranks = sorted(ranks_of_group)
        strides = {after - before for before, after in zip(ranks, ranks[1:])}
        is_part = distributed.get_rank() in ranks and len(ranks) < distributed.get_world_size()
        if is_part and len(strides) == 1:
            name = given.get(id(group)) or group_name(group)
            groups[name, ranks[0], strides.pop(), len(ranks)] = None
    names = ("name", "first", "stride", "size")
    return [dict(zip(names, (*key,))) for key in groups]
