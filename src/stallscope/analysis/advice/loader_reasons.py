"""Explain slow input by the figures of the DataLoader during training, with evidence and advice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from stallscope.formatting.lists import capitalised, clipped, counted, joined, ranks_in_words
from stallscope.formatting.numbers import amount, percent
from stallscope.run import LoaderFigures

from ..gains.what_if import Advice, Reason
from ..setup import Setup
from .input_advice import for_operation, loader_line

#: Fewer batches do not tell.
FEWEST_BATCHES = 20
_FEWEST_OF_WORKER = 8
_FEWEST_SHARDS = 3
# A worker is busy, and a queue is empty, from these shares on.
_BUSY, _EMPTY = 0.9, 0.5
# A part is most of a whole from this share on.
_MOST = 0.5
# A worker, or the first epoch, is slow from this many times the usual time on.
_SLOWER = 1.5
# A kind of batch is slow if one batch in 100 takes so many times the median.
_TAIL = 4.0
# A wait of this share of the whole is due to the order of batches.
_BLOCKED = 0.3
#: Workers that are on a core for less than this share of a batch wait for something.
OFF_CPU = 0.3
# A difference of counts is no chance from so many standard errors on.
_STANDARD_ERRORS = 3.0
_MOST_WORKERS = 64
#: The codes of all reasons.
LOADER_CODES = (
    "loader_restarts",
    "loader_slower",
    "loader_few_shards",
    "loader_slow_shard",
    "loader_slow_worker",
    "loader_slow_batches",
    "loader_cold",
    "loader_crowded",
    "loader_few_workers",
    "loader_no_workers",
    "loader_busy_cores",
    "loader_passing",
    "loader_collating",
    "loader_waiting",
    "loader_copies",
    "loader_function",
    "loader_stage",
    "loader_hidden",
)


_Pair = tuple[Reason, Advice | None] | None


@dataclass(frozen=True)
class LoaderEvidence:
    """What one rank's figures show."""

    figures: LoaderFigures
    setup: Setup
    #: The rank's input, and its step without it, milliseconds.
    input_ms: float
    step_ms: float
    #: The shares of steps without a ready batch of all ranks that are slow, together.
    empty: float

    def reasons(self) -> Iterator[_Pair]:
        """Yield the reasons, the most specific first, each with advice if there is any."""
        if self.figures.stages:
            yield self._longest_stage()
            return
        yield self._restarts()
        yield self._few_shards()
        # What one worker is slow at makes slow batches, too.
        yield self._slow_shard() or self._slow_worker() or self._slow_batches()
        yield self._cold()
        if self.figures.workers:
            yield self._crowded() or self._few_workers()
        else:
            yield self._no_workers()
        yield self._passing()
        yield self._stage()

    def _reason(
        self, code: str, text: str, quantity: str, unit: str, value: float, usual: float | None
    ) -> Reason:
        who = capitalised(ranks_in_words([self.figures.rank]))
        return Reason(
            f"loader_{code}",
            f"{who}: {text}.",
            (self.figures.rank,),
            (),
            quantity,
            unit,
            "",
            value,
            usual,
            None,
        )

    def _restarts(self) -> _Pair:
        """Workers that start again in every epoch."""
        figures = self.figures
        if not figures.workers or figures.persistent or figures.loops < 2:
            return None
        first, asked, waited = figures.first_ms, figures.asked, figures.waited_ms
        if first is None or waited is None or not asked:
            return None
        later = waited * asked / figures.loops
        if first < _MOST * (first + later):
            return None
        text = (
            f"the workers start again in each of {figures.loops} epochs, and the first batch takes "
            f"{amount(first, 'ms')}; training waits {amount(later, 'ms')} for all others of an epoch"
        )
        advice = Advice(
            "Keep the workers alive between epochs", loader_line(self.setup, figures.workers)
        )
        return self._reason("restarts", text, "wait", "ms", first, waited), advice

    def _few_shards(self) -> _Pair:
        """Workers that have nothing to do, because the data set has no shard for them."""
        idle, workers = self.figures.without_data, self.figures.workers
        if not idle:
            return None
        have = "has" if len(idle) == 1 else "have"
        text = (
            f"{len(idle)} of {counted(workers, 'worker')} {have} no data: the data set has shards for "
            f"{workers - len(idle)}"
        )
        advice = Advice(
            "Divide the data into more shards",
            detail=f": at least {workers} for this rank, one for each worker",
        )
        return self._reason("few_shards", text, "workers", "", len(idle), workers), advice

    def _slow_shard(self) -> _Pair:
        """A shard whose batches take longer than those of the others."""
        shards = self.figures.shards
        if shards is None or shards.known < _FEWEST_SHARDS or not shards.slowest:
            return None
        name, worker, batches, ms = shards.slowest[0]
        if batches < _FEWEST_OF_WORKER or ms < max(_SLOWER * shards.ms, self.input_ms):
            return None
        slow = [shard[0] for shard in shards.slowest if shard[3] >= _SLOWER * shards.ms]
        also = f"; slow as well: {joined(list(map(clipped, slow[1:])))}" if slow[1:] else ""
        text = (
            f"a batch of shard {clipped(name)}, which worker {worker} reads, takes {amount(ms, 'ms')}, "
            f"one of the {shards.known} shards usually {amount(shards.ms, 'ms')}{also}"
        )
        advice = Advice(
            f"Look at shard {clipped(name)}",
            detail=": where it lies, and whether its samples are larger than others",
        )
        return self._reason("slow_shard", text, "batch", "ms", ms, shards.ms), advice

    def _longest_stage(self) -> _Pair:
        """The stage that takes most, of a loader that counts by itself."""
        figures = self.figures
        stage, ms = max(figures.stages, key=lambda pair: pair[1])
        whole = sum(ms for _, ms in figures.stages)
        if figures.batches < FEWEST_BATCHES or ms < _MOST * max(whole, self.input_ms):
            return None
        text = (
            f"{figures.kind}: {clipped(stage)} takes {amount(ms, 'ms')} per batch, "
            f"{percent(ms / whole)} of the time of all stages"
        )
        if figures.kind == "tf.data" and figures.empty is not None and figures.empty >= _EMPTY:
            text += f"; {percent(figures.empty)} of looks find no prefetched batch"
        reason = self._reason("stage", text, "stage", "ms", ms, whole)
        return reason, _for_stage(figures.kind, stage, self.setup)

    def _slow_worker(self) -> _Pair:
        """One worker that takes longer than the others for a batch."""
        times = self.figures.worker_ms
        enough = self.figures.batches >= _FEWEST_OF_WORKER * max(1, len(times))
        if len(times) < 2 or not enough:
            return None
        slow = max(range(len(times)), key=times.__getitem__)
        others = median(time for worker, time in enumerate(times) if worker != slow)
        # A batch that takes less than training waits does not explain the wait.
        least = max(_SLOWER * others, self.input_ms)
        if times[slow] < least or self._by_chance(times[slow], others):
            return None
        text = (
            f"worker {slow} takes {amount(times[slow], 'ms')} for a batch, the others "
            f"{amount(others, 'ms')}"
        )
        advice = Advice(
            f"Look at what worker {slow} reads",
            detail=": the shard or files of its own, where they lie, and what else runs on its core",
        )
        return self._reason("slow_worker", text, "batch", "ms", times[slow], others), advice

    def _by_chance(self, slow_ms: float, usual_ms: float) -> bool:
        """Whether two workers' times differ by the few slow batches that each happened to get."""
        p50, p99, workers = self.figures.p50_ms, self.figures.p99_ms, self.figures.workers
        if not p50 or p99 is None or p99 < _TAIL * p50 or not workers:
            return False
        # As if all of the time were in slow batches, whose numbers vary as Poisson's.
        slow, usual = (ms * self.figures.batches / workers / p99 for ms in (slow_ms, usual_ms))
        return slow - usual < _STANDARD_ERRORS * math.sqrt(slow + usual)

    def _slow_batches(self) -> _Pair:
        """A few slow batches, behind which those that are ready wait for their turn."""
        figures = self.figures
        p50, p99, waited, blocked = (
            figures.p50_ms,
            figures.p99_ms,
            figures.waited_ms,
            figures.blocked_ms,
        )
        if (
            not p50
            or p99 is None
            or not waited
            or blocked is None
            or figures.asked < FEWEST_BATCHES
        ):
            return None
        if p99 < _TAIL * p50 or blocked < _BLOCKED * waited:
            return None
        text = (
            f"one batch in 100 takes {amount(p99, 'ms')} or more, the median {amount(p50, 'ms')}; in "
            f"{percent(blocked / waited)} of the wait, later batches were ready and had to wait for "
            "their turn"
        )
        depth = max(4, 2 * (figures.prefetch or 2))
        advice = Advice(
            "Let more batches wait ahead of slow ones",
            loader_line(self.setup, figures.workers, depth),
            unless="Or make the slow samples cheaper: find them by their size or source.",
        )
        return self._reason("slow_batches", text, "batch", "ms", p99, p50), advice

    def _passing(self) -> _Pair:
        """Batches that are ready, and take long to reach training."""
        figures = self.figures
        waited, passed = figures.waited_ms, figures.passed_ms
        if not figures.workers or not waited or passed is None or figures.asked < FEWEST_BATCHES:
            return None
        if passed < _MOST * waited:
            return None
        text = (
            f"a batch that is ready takes {amount(passed, 'ms')} to reach training, "
            f"{percent(passed / waited)} of the wait"
        )
        advice = Advice(
            "Pass fewer and smaller tensors from workers to training",
            detail=": one tensor per batch and kind, uint8 instead of float32",
            unless="Or give ranks and workers more CPU cores: passing needs both sides at once.",
        )
        return self._reason("passing", text, "passing", "ms", passed, waited), advice

    def _cold(self) -> _Pair:
        """A first epoch that is slower than the later ones."""
        if not self.figures.epochs:
            return None
        first, *later = self.figures.epochs
        if first.epoch != 0 or first.batches < FEWEST_BATCHES:
            return None
        batches = sum(epoch.batches for epoch in later)
        if batches < FEWEST_BATCHES:
            return None
        usual = sum(epoch.made_ms * epoch.batches for epoch in later) / batches
        if first.made_ms < _SLOWER * usual:
            return None
        text = (
            f"in the first epoch a batch takes {amount(first.made_ms, 'ms')} to make, later "
            f"{amount(usual, 'ms')}: the data is read from storage once, then from memory"
        )
        advice = Advice(
            "Copy the data to a local disk before training, or read larger files",
            unless="Not if later epochs are fast enough, and the first is a small part of the job.",
        )
        return self._reason("cold", text, "batch", "ms", first.made_ms, usual), advice

    def _no_workers(self) -> _Pair:
        figures = self.figures
        if figures.made_ms is None:
            return None
        text = (
            f"training makes its batches itself, {amount(figures.made_ms, 'ms')} each, while the model "
            "waits"
        )
        workers = self._needed() or 1
        advice = Advice(
            "Make batches in worker processes, ahead of training", loader_line(self.setup, workers)
        )
        return self._reason("no_workers", text, "batch", "ms", figures.made_ms, None), advice

    def _crowded(self) -> _Pair:
        """More workers than CPU cores, which slow each other down."""
        workers, cores = self.figures.workers * self.setup.ranks_on_machine, self.setup.cpu_cores
        on_cpu = self.figures.share_of_making(self.figures.cpu_ms)
        if cores is None or workers <= cores or on_cpu is None or self._mostly_waits():
            return None
        without_core = self.figures.share_of_making(self.figures.crowded_ms) or 0.0
        # Workers without cores leave none to training, even where batches are ready.
        if without_core < _BLOCKED and not self._all_busy():
            return None
        text = (
            f"{counted(workers, 'worker')} of the host's ranks share {counted(cores, 'CPU core')}, and "
            f"have one for {percent(on_cpu)} of the time that a batch takes"
        )
        advice = Advice(
            "Use no more workers than CPU cores, and make each batch cheaper",
            loader_line(self.setup, max(1, self.setup.spare_cores or 0)),
        )
        return self._reason("crowded", text, "workers", "", workers, cores), advice

    def _few_workers(self) -> _Pair:
        """All workers are busy, and the queue is empty."""
        figures, busy = self.figures, self.figures.busy_share
        if not self._all_busy() or busy is None:
            return None
        count = sum(share >= _BUSY for share in figures.busy)
        empty = (
            ""
            if figures.empty is None
            else f", and in {percent(figures.empty)} of steps none has a batch ready"
        )
        text = (
            f"{count} of {counted(figures.workers, 'worker')} are busy {percent(busy)} of the time"
            f"{empty}"
        )
        needed, spare = self._needed(), self.setup.spare_cores
        advice = None
        # Without more shards, further workers have nothing to do.
        if figures.without_data:
            needed = None
        if needed is not None and needed > figures.workers:
            # Workers that wait for storage need no core.
            if self._mostly_waits() or spare is None or needed <= max(spare, figures.workers):
                advice = Advice("Give the DataLoader more workers", loader_line(self.setup, needed))
            else:
                advice = Advice(
                    "Make each batch cheaper, or use hosts with more CPU cores",
                    detail=f": {counted(needed, 'worker')} would keep up, and a rank has "
                    f"{counted(max(spare, 0), 'CPU core')} for them",
                )
        return self._reason("few_workers", text, "busy workers", "%", 100 * busy, None), advice

    def _stage(self) -> _Pair:
        """The part of making a batch that takes most of it."""
        figures = self.figures
        if figures.workers and not self._all_busy():
            return None
        collating = figures.share_of_making(figures.collate_ms)
        waits = self._waits
        batch_ms = figures.made_ms or 0.0
        if collating is not None and collating >= _MOST:
            text = (
                f"collating takes {percent(collating)} of the {amount(batch_ms, 'ms')} for a batch"
            )
            advice = Advice(
                "Make collating cheaper",
                detail=": pad and stack once, of tensors that have their final type already",
            )
            return self._reason("collating", text, "collating", "%", 100 * collating, None), advice
        name, share = next(iter(figures.functions), ("", 0.0))
        longest = (
            f"; {clipped(name)} takes {percent(share)} of it" if share >= _MOST and name else ""
        )
        if waits is not None and self._mostly_waits():
            maker = "a worker" if figures.workers else "the training process"
            # Older logs do not tell waits for a core apart.
            others = "a lock or a core" if figures.crowded_ms is None else "or a lock"
            text = (
                f"a batch takes {amount(batch_ms, 'ms')} to make, of which {maker} waits "
                f"{percent(waits)}: for storage, a network, {others}{longest}"
            )
            advice = Advice(
                "Read from faster or nearer storage, or read fewer and larger files",
                unless="More workers help as well, unless storage is at its limit.",
            )
            return self._reason("waiting", text, "waiting", "%", 100 * waits, None), advice
        if longest:
            text = f"{clipped(name)} takes {percent(share)} of the {amount(batch_ms, 'ms')} for a batch"
            advice = Advice(
                f"Make {clipped(name)} cheaper",
                detail=": do it once beforehand, on the device, or with a faster library",
            )
            return self._reason("function", text, "function", "%", 100 * share, None), advice
        return None

    @property
    def _waits(self) -> float | None:
        """Return the share of a batch in which a worker neither runs nor waits for a CPU core."""
        on_cpu = self.figures.share_of_making(self.figures.cpu_ms)
        crowded = self.figures.share_of_making(self.figures.crowded_ms) or 0.0
        return None if on_cpu is None else max(0.0, 1 - on_cpu - crowded)

    def _mostly_waits(self) -> bool:
        """Whether workers wait for storage most of the time, which needs no core."""
        waits = self._waits
        return waits is not None and waits > 1 - OFF_CPU

    def _all_busy(self) -> bool:
        """Whether making batches limits the training.

        Workers that keep step finish their batches together, and training waits for the first of them.
        A step waits for one of the ranks, whose batch comes last.
        """
        figures = self.figures
        busy = figures.busy_share
        waits = figures.empty is None or self.empty >= _EMPTY / max(1, figures.workers)
        return busy is not None and busy >= _BUSY and waits

    def _needed(self) -> int | None:
        """Return the number of workers that keep up with the rank's step; None if unknown."""
        batch_ms = self.figures.made_ms
        if batch_ms is None or self.step_ms <= 0:
            return None
        return min(_MOST_WORKERS, math.ceil(batch_ms / self.step_ms))


def _for_stage(kind: str, stage: str, setup: Setup) -> Advice | None:
    """Return advice on the longest stage of a loader that counts by itself.

    Args:
        kind: ``Ray Data`` or ``tf.data``.
        stage: its name there.
        setup: the run's setup.
    """
    if kind != "Ray Data":
        return for_operation(setup, stage)
    if stage == "waiting for Ray's tasks":
        return Advice(
            "Give Ray Data's tasks more CPU cores, or make its functions cheaper",
            "print(data.stats())",
            detail=": they make blocks more slowly than this rank trains, and its statistics show which "
            "function takes longest",
        )
    return Advice(
        "Prepare more batches ahead of training",
        "data.iter_torch_batches(batch_size=32, prefetch_batches=4)",
        detail=f": {stage} happens in the training process",
    )
