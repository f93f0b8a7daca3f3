"""Train in turns in one process, with StepLogger and with a bare tool, on networks of two sizes.

The programs of this folder call ``run``. Their arguments: OUT STEPS, and "no-stages". More arms, where
there are any, have all calls that StepLogger's users write: one reads the clock in them, and one does
only what no recorder can leave out.

On the smaller network StepLogger then trains in more turns with and without causes inside steps, if it
is timed from outside.

Writes OUT/LAYERS/recorded-N with StepLogger's logs of one turn, and OUT/LAYERS/spent.json: for each arm
and turn, the microseconds that training spends in the tool (see Ruler), the median over steps. For
causes it is that over blocks of steps: the tokens of one batch are counted in each block. Its "calls"
are, for each arm and turn, those of each call in a step.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple, Union

#: Dense layers before the last; each has two gradients.
LAYERS = (10, 80)
TURNS, TURNS_FOR_CAUSES = 2, 8
WIDTH, BATCH = 64, 32
STAGES = "no-stages" not in sys.argv
#: Tokens are counted in one of so many batches.
COUNTED = 8
_RECORDER = "stallscope.collector.recorder"


class Ruler:
    """Times a tool from outside: its functions, from their call to their return.

    The framework's work to call them is not included.
    """

    def __init__(self) -> None:
        self._spent: List[int] = []
        self._taken: List[int] = []
        # When the loader was last asked for a batch, and when it returned one.
        self._requested = self._returned = 0

    def time_methods(self, owner: Any, *names: str) -> None:
        """Time these methods of a class or an object."""
        for name in names:
            setattr(owner, name, self.around(getattr(owner, name)))

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls timed."""
        spent = self._spent.append

        def timed(*args: Any, **given: Any) -> Any:
            begun = monotonic_ns()
            try:
                return call(*args, **given)
            finally:
                spent(monotonic_ns() - begun)

        return timed

    def loop(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a tool, and time the tool without its loader (see ``time_loader``)."""
        watched = iter(batches)
        while True:
            left = monotonic_ns()
            try:
                batch = next(watched)
            except StopIteration:
                return
            arrived = monotonic_ns()
            self._spent.append(self._requested - left + arrived - self._returned)
            yield batch

    def time_loader(self, kind: type) -> None:
        """Record when loaders of this type are asked for a batch, and when they return one."""
        original = kind.__iter__  # type: ignore[attr-defined]
        ruler = self

        class Timed:
            def __init__(self, loader: Any) -> None:
                self._batches = original(loader)

            def __iter__(self) -> "Timed":
                return self

            def __next__(self) -> Any:
                ruler._requested = monotonic_ns()
                batch = next(self._batches)
                ruler._returned = monotonic_ns()
                return batch

        kind.__iter__ = lambda loader: Timed(loader)  # type: ignore[attr-defined]

    def take_us(self, steps: int, block: int = 1) -> float:
        """Return the microseconds per step in the tool, and reset.

        Of so many steps, it is the median over blocks; 0 if the tool is not timed.
        """
        taken = self._taken = self._spent[:]
        self._spent.clear()
        calls = len(taken) // steps
        if not calls:
            return 0.0
        # A loop may end with an additional call, and with a part of a block.
        size = calls * block
        starts = range(0, calls * steps - size + 1, size)
        return median(sum(taken[at : at + size]) for at in starts) / block / 1e3

    def calls_us(self, steps: int) -> List[float]:
        """Return the microseconds of each call in a step, of the steps that were taken last."""
        calls = len(self._taken) // steps
        return [median(self._taken[at : calls * steps : calls]) / 1e3 for at in range(calls)]


class Bare:
    """A tool that only reads the clock and keeps the reading."""

    def __init__(self) -> None:
        #: Keeps a reading.
        self.keep: Callable[[int], None] = [].append  # type: ignore[assignment]

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches, and read the clock when each arrives and when its iteration is over."""
        keep = self.keep
        for batch in batches:
            keep(monotonic_ns())
            yield batch
            keep(monotonic_ns())


_Arm = Callable[[Bare], None]
#: Train with StepLogger in this folder, and with the tools below.
Arms = Union[
    Tuple[Callable[[Path], None], _Arm],
    Tuple[Callable[[Path], None], _Arm, _Arm, _Arm],
]
#: The bare tool, one with StepLogger's calls that only reads the clock, and one that reads shapes, too.
TOOLS = ("bare", "calls", "same_calls")


def run(
    arms_of: Callable[[int, int, Ruler], Arms],
    prepare: Callable[[Ruler], None] = lambda _: None,
    writes: bool = True,
) -> None:
    """Train with each arm in turns.

    Args:
        arms_of: makes the arms, from the number of layers and of steps.
        prepare: puts the ruler around functions that both arms share.
        writes: whether this rank writes what was spent.
    """
    out, steps, ruler = Path(sys.argv[1]), int(sys.argv[2]), Ruler()
    prepare(ruler)
    for layers in LAYERS:
        recorded, *tools = arms_of(layers, steps, ruler)
        folder = out / str(layers)
        arms = {"recorded": recorded, **dict(zip(TOOLS, map(of_tool, tools)))}
        calls: Dict[str, List[List[float]]] = {name: [] for name in arms}

        def take_us(arm: str, calls: Dict[str, List[List[float]]] = calls) -> float:
            us = ruler.take_us(steps)
            calls[arm].append(ruler.calls_us(steps))
            return us

        spent: Dict[str, Any] = in_turns(arms, TURNS, folder, take_us)
        spent["calls"] = calls
        if layers == LAYERS[0] and any(spent["recorded"]):
            arms = {"causes": recorded, "no_causes": without_causes(recorded)}
            spent.update(
                in_turns(arms, TURNS_FOR_CAUSES, folder, lambda _: ruler.take_us(steps, COUNTED))
            )
        if writes:
            (folder / "spent.json").write_text(json.dumps(spent))


def of_tool(train: Callable[[Any], None]) -> Callable[[Path], None]:
    """Return a way to train with a tool that writes nothing."""
    return lambda _: train(Bare())


def in_turns(
    arms: Dict[str, Callable[[Path], None]],
    turns: int,
    folder: Path,
    take_us: Callable[[str], float],
) -> Dict[str, List[float]]:
    """Train with each arm in turns, in folders of their own; return what was taken after each turn."""
    spent: Dict[str, List[float]] = {name: [] for name in arms}
    for turn in range(turns):
        # A later arm of a turn may find warmer caches.
        for name in list(arms) if turn % 2 else reversed(list(arms)):
            arms[name](folder / f"{name}-{turn}")
            spent[name].append(take_us(name))
    return spent


def without_causes(recorded: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a way to train with StepLogger that hooks into nothing for causes, and counts no tokens."""

    def train(out: Path) -> None:
        modules = [module for name, module in sys.modules.items() if name.startswith(_RECORDER)]
        hooks = sys.modules[f"{_RECORDER}.interruptions"].Interruptions
        parts = [(module, "padded_in") for module in modules if hasattr(module, "padded_in")]
        with ExitStack() as undo:
            for owner, name in (*parts, (hooks, "start"), (hooks, "_hook_modules")):
                undo.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, _nothing)
            recorded(out)

    return train


def _nothing(*_: Any) -> None:
    pass
