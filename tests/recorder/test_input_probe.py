"""An input probe fetches the next batches ahead, and changes neither batches nor their order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.collector.recorder.input.loader_wrappers import BatchReader, InputProbe, Memory
from stallscope.collector.recorder.keras_common.fit_callback import FitCallback, probe_input
from stallscope.collector.recorder.keras_common.fit_recording import FitRecording
from stallscope.collector.recorder.options import Options

# The probe is due in this iteration, and takes so many batches.
EVERY, BATCHES = 10, 5


def reader(
    why_not: str | None = None, kept_back: int = 0, size: int = 0, in_background: bool = False
) -> BatchReader:
    """Return a reader of batches that are arrays; ``size`` replaces theirs."""
    return BatchReader(
        why_not=lambda loader, is_named: why_not,
        ready=lambda loader: 0,
        kept_back=lambda loader: kept_back,
        memory=lambda batch: Memory(size or batch.nbytes, {batch.ctypes.data}),
        random_states=lambda: None,
        in_background=lambda loader: in_background,
    )


class Loader:
    """A loader of numbered batches, which notes how many have been fetched."""

    def __init__(self, length: int, fails_at: int = -1) -> None:
        self.length = length
        self.fails_at = fails_at
        self.fetched = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.length):
            if number == self.fails_at:
                raise OSError("the disk is gone")
            self.fetched += 1
            yield np.full(4, number)


class Endless(Loader):
    __len__ = None  # type: ignore[assignment]


class Training:
    """A training that counts its steps, and the facts of its probe."""

    def __init__(self, **options: Any) -> None:
        self.step = 0
        self.facts: dict[str, Any] = {}
        self.trained: list[int] = []
        #: By step, how many batches have been fetched and not trained when it begins.
        self.ahead: dict[int, int] = {}
        every = options.pop("every", EVERY)
        #: The moments until which ranks may fetch.
        self.expected: list[int] = []
        count, record, expect = lambda: self.step, self.facts.update, self.expected.append
        #: Whether training went on with batches fetched ahead, at each change.
        self.changes: list[tuple[int, bool]] = []
        self.probe = InputProbe(
            BATCHES, every, reader(**options), count, record, expect, self._change
        )

    def _change(self, ahead: bool) -> None:
        self.changes.append((self.step, ahead))

    def loop(self, loader: Any, explicit: int | None = None, steps: int | None = None) -> None:
        batches: Iterable[Any] = self.probe.watch(loader, iter(loader), explicit)
        for batch in itertools.islice(batches, steps):
            self.trained.append(int(batch[0]))
            self.ahead[self.step] = getattr(loader, "fetched", 0) - int(batch[0]) - 1
            self.step += 1

    @property
    def refused(self) -> str | None:
        refused: str | None = self.facts["input_probe"]["refused"]
        return refused

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the first step of each probe, and the first one after it."""
        probes = self.facts.get("input_probe", {}).get("probes", [])
        return [(probe["first_step"], probe["end_step"]) for probe in probes]


def test_the_next_batches_are_fetched_ahead_and_trained_in_their_order() -> None:
    training = Training(every=None)
    training.loop(Loader(140))
    assert training.trained == list(range(140))
    assert training.spans == [(100, 105)]
    ahead = [training.ahead[step] for step in range(98, 107)]
    assert ahead == [0, 0, 4, 3, 2, 1, 0, 0, 0]
    (probe,) = training.facts["input_probe"]["probes"]
    assert (len(probe["fetched_us"]), probe["bytes"], probe["ended"]) == (5, 5 * 4 * 8, None)
    assert len(training.expected) == 1
    assert training.refused is None


def test_probes_come_again_in_intervals() -> None:
    training = Training()
    training.loop(Loader(36))
    assert training.trained == list(range(36))
    assert training.spans == [(10, 15), (20, 25), (30, 35)]
    assert training.changes == [
        (step, ahead) for span in training.spans for step, ahead in zip(span, (True, False))
    ]


def test_a_probe_waits_for_an_epoch_with_enough_batches() -> None:
    training = Training()
    for _ in range(3):
        training.loop(Loader(12))
    assert training.trained == 3 * list(range(12))
    # In the third iteration of an epoch, so that its loader has started.
    assert training.spans == [(14, 19), (26, 31)]


def test_short_epochs_have_shorter_probes() -> None:
    training = Training()
    for _ in range(3):
        training.loop(Loader(8))
    assert training.trained == 3 * list(range(8))
    assert training.spans == [(10, 15), (20, 24)]
    assert [probe["ended"] for probe in training.facts["input_probe"]["probes"]] == [None, "epoch"]


def test_the_last_batches_are_not_fetched_ahead_where_the_loader_tells_its_end() -> None:
    training = Training(kept_back=2)
    for _ in range(2):
        training.loop(Loader(14))
    assert training.trained == 2 * list(range(14))
    assert training.spans == [(16, 21)]
    training = Training(kept_back=2)
    training.loop(Endless(14))
    assert training.spans == [(10, 14)]


def test_an_error_of_the_loader_comes_after_the_batches_before_it() -> None:
    training = Training()
    with pytest.raises(OSError, match="the disk is gone"):
        training.loop(Loader(30, fails_at=13))
    assert training.trained == list(range(13))
    assert training.facts["input_probe"]["probes"][0]["ended"] == "error"


def test_a_loop_that_is_left_ends_its_probe() -> None:
    training = Training()
    training.loop(Loader(30), steps=12)
    training.loop(Loader(30))
    assert training.trained == [*range(12), *range(30)]
    assert training.spans == [(10, 12), (20, 25), (30, 35)]


def test_memory_limits_the_number_of_batches() -> None:
    training = Training(size=60 << 20)
    training.loop(Loader(30))
    assert training.trained == list(range(30))
    assert training.spans[0] == (10, 14)
    assert training.facts["input_probe"]["probes"][0]["ended"] == "memory"
    training = Training(size=70 << 20)
    training.loop(Loader(30))
    assert training.spans == []
    assert training.refused == "a batch takes 70 MB, and 256 MB hold too few of them"


def drawing(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        batch[1] = random.randrange(1 << 30)
        yield batch


def test_batches_that_draw_are_not_fetched_ahead_of_a_training_that_draws() -> None:
    def train(training: Training | None, training_draws: bool) -> list[float]:
        random.seed(3)
        drawn: list[float] = []
        batches = drawing(Loader(30))
        watched = batches if training is None else training.probe.watch(Loader(30), batches)
        for batch in watched:
            drawn += [float(batch[1]), random.random() if training_draws else 0.0]
            if training is not None:
                training.step += 1
        return drawn

    drawing_too = Training()
    assert train(drawing_too, training_draws=True) == train(None, training_draws=True)
    assert drawing_too.spans == []
    assert drawing_too.refused is not None
    assert drawing_too.refused.startswith(
        "the loader draws random numbers in the training's process"
    )
    steady = Training()
    assert train(steady, training_draws=False) == train(None, training_draws=False)
    assert steady.spans == [(10, 15), (20, 25)]


def test_draws_of_threads_that_make_batches_are_nobodys() -> None:
    random.seed(3)
    training = Training(in_background=True)
    for _ in training.probe.watch(Loader(30), drawing(Loader(30))):
        random.random()
        training.step += 1
    assert (training.refused, training.spans) == (None, [(10, 15), (20, 25)])


class BeginsAgain:
    """An iterator that begins again where it is asked for an iterator, as Lightning's does."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.batches = iter(loader)

    def __iter__(self) -> Iterator[Any]:
        self.batches = iter(self.loader)
        return self

    def __next__(self) -> Any:
        return next(self.batches)


def test_an_iterator_that_could_begin_again_does_not() -> None:
    training = Training(every=None)
    batches = training.probe.watch(Loader(140), BeginsAgain(Loader(140)))
    assert [int(batch[0]) for batch in batches] == list(range(140))
    assert len(training.spans) == 1


def test_an_epoch_that_has_ended_has_no_probe() -> None:
    training = Training()
    for _ in range(2):
        training.loop(Endless(10))
    # The first epoch ends where the probe is due.
    assert training.trained == 2 * list(range(10))
    assert training.spans == [(12, 17)]


def test_batches_that_share_memory_are_not_fetched_ahead() -> None:
    buffers = [np.zeros(4), np.zeros(4)]

    def batches() -> Iterator[Any]:
        for number in range(30):
            buffers[number % 2][:] = number
            yield buffers[number % 2]

    training = Training()
    trained = [float(batch[0]) for batch in training.probe.watch(Loader(30), batches())]
    assert trained == list(range(30))
    assert training.refused == "its batches share memory, so only one can be kept at a time"


def test_a_loader_that_does_not_allow_it_is_refused_with_the_reason() -> None:
    training = Training(why_not="it is an iterator")
    training.loop(Loader(30))
    assert training.trained == list(range(30))
    assert (training.refused, training.spans) == ("it is an iterator", [])
    training = Training()
    training.loop(Loader(7))
    assert training.refused == "an epoch has only 7 batches"


def test_a_fault_of_the_probe_does_not_reach_training() -> None:
    training = Training()
    training.probe._reader = reader()._replace(memory=lambda batch: 1 / 0)  # type: ignore[arg-type,return-value]
    training.loop(Loader(30))
    assert training.trained == list(range(30))
    assert training.refused == "ZeroDivisionError('division by zero')"


def test_a_loop_can_name_its_number_of_batches() -> None:
    training = Training()
    training.loop(Loader(20), explicit=0)
    assert training.facts == {}
    training.loop(Loader(30), explicit=8)
    assert training.spans == [(30, 38), (40, 48)]


# -- Data of Keras asks for a probe itself ---------------------------------------------------------


def test_data_of_keras_stays_the_same_object() -> None:
    data = Loader(8)
    assert probe_input(data) is probe_input(data, 0) is data


@pytest.mark.parametrize("arrays", [np.zeros((8, 2)), [1.0, 2.0]], ids=["array", "list"])
def test_arrays_of_keras_have_no_probe(arrays: Any) -> None:
    with pytest.raises(TypeError, match="in memory already"):
        probe_input(arrays)


def test_a_probe_of_three_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4, not 3"):
        probe_input(Loader(8), 3)


class Unhashable:
    def __hash__(self) -> int:
        raise OSError("the file is gone")


@pytest.mark.parametrize(
    ("data", "batches"),
    [(probe_input(Loader(8), 6), 6), (Loader(8), 0), (np.zeros(2), 0), (Unhashable(), 0)],
    ids=["asks", "asks-nothing", "array", "no-hash"],
)
def test_data_of_a_fit_decides_on_its_probe(data: Any, batches: int, tmp_path: Path) -> None:
    class Callback(FitCallback):
        recording_type = FitRecording
        _options = Options(tmp_path)

    class Model:
        def fit(self, x: Any) -> Options:
            callback = Callback()
            callback.model = self
            return callback._options_of_fit()

    assert Model().fit(data).probe_input == batches
