"""Read what iterable data sets and other libraries' loaders expose: shards, the loader inside, order.

Nothing here imports these libraries: an object's class and attributes tell what it is. Where another
version of a library looks different, its figures are missing, and training goes on.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from torch.utils.data import DataLoader

from ..input.input_times import StageSums
from ..job.job_facts import batches_in
from .batches import AHEAD_BY_ONE

# The longest name of a shard, and the most shards that are named.
_LONGEST_NAME, _MOST_NAMED = 60, 3
# Times of one shard's batches that are kept for its median.
_MOST_TIMES = 256
# Data sets around data sets in Hugging Face's streams.
_DEEPEST = 20
#: The name of the shard that this process reads; None while it is unknown.
ShardName = Callable[[], Optional[str]]


# -- Shards, in the workers -----------------------------------------------------------------------


def short_name(address: Any) -> Optional[str]:
    """Return the last part of a shard's address, without a query, which may hold a signature."""
    if not isinstance(address, str):
        return None
    return address.partition("?")[0].rstrip("/").rpartition("/")[2][-_LONGEST_NAME:] or None


def shard_name(fetcher: Any) -> Optional[ShardName]:
    """Return what tells the shard that a worker reads; None if its data set names no shards.

    Args:
        fetcher: of an iterable data set, in a worker.
    """
    module = type(getattr(fetcher, "dataset", None)).__module__.partition(".")[0]
    if module == "datasets":
        return _HuggingFaceShards(fetcher.dataset_iter).name
    reader = sys.modules.get("webdataset.tariterators")
    if reader is None:
        return None
    shards = getattr(reader.tar_file_iterator, "__self__", None)
    return (shards if isinstance(shards, _WebDatasetShards) else _WebDatasetShards(reader)).name


class _WebDatasetShards:
    """The shard that WebDataset has opened last in this process."""

    def __init__(self, reader: Any) -> None:
        self._name: Optional[str] = None
        self._iterate = reader.tar_file_iterator
        reader.tar_file_iterator = self.tar_file_iterator

    def tar_file_iterator(self, *arguments: Any, **options: Any) -> Any:
        """Note the shard, once for each, and read it: the stream does not know its address."""
        self._name = short_name(sys._getframe(1).f_locals.get("url"))
        return self._iterate(*arguments, **options)

    def name(self) -> Optional[str]:
        return self._name


class _HuggingFaceShards:
    """The shard that a stream of Hugging Face's ``datasets`` has reached, by its own state.

    A stream that reads several shards at once, such as a shuffled one, has no such state.
    """

    def __init__(self, samples: Any) -> None:
        self._samples = samples
        self._source: Any = None

    def name(self) -> Optional[str]:
        if self._source is None:
            with contextlib.suppress(Exception):  # another version
                self._source = self._innermost()
        source = self._source
        state = getattr(source, "_state_dict", None)
        number = state.get("shard_idx") if isinstance(state, dict) else None
        if source is None or not isinstance(number, int):
            return None
        for values in source.kwargs.values():
            if isinstance(values, list) and number < len(values) == source.num_shards:
                name = short_name(values[number])
                # A single value may be anything else.
                if name is not None and (len(values) > 1 or "." in name):
                    return name
        return "shard %d" % number

    def _innermost(self) -> Any:
        """Return what reads the shards, from the local variables of the running iteration."""
        frame = (self._samples.gi_yieldfrom or self._samples).gi_frame
        source = frame.f_locals["ex_iterable"]
        for _ in range(_DEEPEST):
            if not hasattr(source, "ex_iterable"):
                return source
            source = source.ex_iterable
        return None


class ShardTimes:
    """How long a worker's batches take, by the shard that it reads."""

    def __init__(self, name: ShardName) -> None:
        self._name_of = name
        self._name: Optional[str] = None
        self._times: List[int] = []
        # By name: batches, and the median of their nanoseconds.
        self._medians: Dict[str, Tuple[int, float]] = {}

    def renamed(self, name: ShardName) -> "ShardTimes":
        """Return the same times, for a new iteration, which names its shards anew."""
        self._name_of = name
        return self

    def add(self, took: int) -> bool:
        """Add a batch of these nanoseconds; return whether it has ended a shard."""
        name = None
        with contextlib.suppress(Exception):  # another version; the batch must reach training
            name = self._name_of()
        if name == self._name:
            if len(self._times) < _MOST_TIMES:
                self._times.append(took)
            return False
        # A batch of two shards, and the time to open one, is neither's.
        ended = self.end()
        self._name = name
        return ended

    def end(self) -> bool:
        """End a shard; return whether any batch was of this shard alone."""
        times, self._times = self._times, []
        if self._name is None or not times:
            return False
        self._medians[self._name] = (len(times), statistics.median(times))
        return True

    def text(self) -> List[Any]:
        """Return the number of shards, their median in microseconds, and the slowest of them."""
        medians = sorted(((ns, name, n) for name, (n, ns) in self._medians.items()), reverse=True)
        slowest = [[name, n, round(ns / 1e3, 1)] for ns, name, n in medians[:_MOST_NAMED]]
        usual = statistics.median(ns for ns, _, _ in medians)
        return [len(medians), round(usual / 1e3, 1), slowest]


def shards_of(texts: List[List[Any]]) -> Optional[Dict[str, Any]]:
    """Return what the workers' ``ShardTimes`` tell together; None without any."""
    known = [(worker, text) for worker, text in enumerate(texts) if text]
    if not known:
        return None
    slowest = [
        [name, worker, batches, us]
        for worker, (_, _, named) in known
        for name, batches, us in named
    ]
    slowest.sort(key=lambda shard: shard[3], reverse=True)
    return {
        "known": sum(count for _, (count, _, _) in known),
        # Of two workers, one may read slow shards only.
        "us": statistics.median_low([usual for _, (_, usual, _) in known]),
        "slowest": slowest[:_MOST_NAMED],
    }


# -- Loaders around a DataLoader, in the training process -----------------------------------------


def loader_in_pipeline(loader: Any) -> Any:
    """Return the DataLoader at the start of a WebDataset pipeline; other loaders stay themselves."""
    stages = getattr(loader, "pipeline", None)
    if isinstance(loader, DataLoader) or not isinstance(stages, list) or not stages:
        return loader
    return stages[0] if isinstance(stages[0], DataLoader) else loader


def passes_batches_on(loader: Any) -> bool:
    """Return whether a WebDataset pipeline gives exactly the batches of its DataLoader."""
    return len(loader.pipeline) == 1 and getattr(loader, "repetitions", 1) == 1


def why_not(loader: Any) -> Optional[str]:
    """Return why a loader cannot be watched; None if it can."""
    if not isinstance(loader, DataLoader):
        return "the loader is a %s, not a DataLoader" % type(loader).__name__
    if not hasattr(loader, "_get_iterator"):
        return "this DataLoader makes its iterator in another way"
    return None


class LoopOrder(NamedTuple):
    """Which batches the iterations of a loop take."""

    #: Why that is unknown; None if it is known.
    unknown: Optional[str]
    #: Batches that the first iteration takes besides its own, because the loop looks for its end.
    extra: int = 0
    #: All batches of the loop; None if unknown.
    length: Optional[int] = None
    #: Batches at the start that the loop takes and does not use.
    skipped: int = 0

    def taken_in(self, batches: int, taken: int) -> int:
        """Return how many batches an iteration takes that uses so many, after those taken before."""
        wanted = batches if taken else batches + self.extra
        return wanted if self.length is None else min(wanted, self.length - taken)


def loop_order(loader: Any, looks_ahead: bool) -> LoopOrder:
    """Return which batches the iterations over a loader take.

    Args:
        loader: the training's.
        looks_ahead: whether the training takes the next batch before it uses one.
    """
    kind, extra, skipped = type(loader), int(looks_ahead), 0
    if kind.__name__ in AHEAD_BY_ONE:
        extra += 1
    elif kind.__name__ == "DataLoaderShard":
        # Accelerate's: it skips the batches that a checkpoint has trained.
        skipped = getattr(loader, "skip_batches", 0)
        extra += 1 + skipped
    elif kind.__iter__ is not DataLoader.__iter__ and not (
        loader_in_pipeline(loader) is not loader and passes_batches_on(loader)
    ):
        what = "a %s may take batches ahead, so the waits for them are unknown"
        return LoopOrder(what % kind.__name__)
    if not getattr(loader, "in_order", True):
        return LoopOrder("batches come out of order, so the waits for them are unknown")
    return LoopOrder(None, extra, batches_in(loader) if extra else None, skipped)


# -- Ray Data's timers, in the training process ---------------------------------------------------

# Where training is blocked, by Ray Data's own words.
_BLOCKED = (
    ("waiting for Ray's tasks", "iter_blocked_production_wait_s"),
    ("fetching blocks", "iter_blocked_data_transfer_s"),
    ("batching", "iter_blocked_batching_s"),
    ("formatting", "iter_blocked_format_s"),
    ("collating", "iter_blocked_collate_s"),
    ("finalizing", "iter_blocked_finalize_s"),
)


class RayTimers:
    """Ray Data's timers of the iterations of a training, which its loader keeps itself."""

    def __init__(self) -> None:
        self._batches: Any = None
        self._stats: Any = None
        self._sums = StageSums("Ray Data")

    def begin(self, batches: Any) -> bool:
        """Follow a new iteration; return whether it is one of Ray Data."""
        code = getattr(batches, "gi_code", None)
        if code is None or "/ray/data/" not in code.co_filename.replace("\\", "/"):
            return False
        self.read()
        self._batches = batches
        return True

    def read(self) -> None:
        """Read the timers; Ray Train's shards keep one object for all iterations."""
        with contextlib.suppress(Exception):  # another version
            frame = getattr(self._batches, "gi_frame", None)
            if frame is not None:
                self._stats = frame.f_locals.get("stats") or self._stats
            stats = self._stats
            blocked = {name: int(1e9 * getattr(stats, timer).get()) for name, timer in _BLOCKED}
            self._sums.update(stats, int(stats.iter_batches_total), blocked)

    def fact(self) -> Optional[Dict[str, Any]]:
        """Return how long training was blocked per batch, by stage; None while that is unknown."""
        fact = self._sums.fact()
        if fact is None:
            return None
        return {**fact, "waited_us": round(sum(us for _, us in fact["stages"]), 1)}
