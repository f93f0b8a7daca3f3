"""Inputs kept from fuzzing: each ends in logs or in one of our errors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz import corpus
from fuzz.fewest import fewest
from fuzz.mutating import changes
from fuzz.targets import BETWEEN_FILES, TARGETS, whole


@pytest.mark.parametrize("target", TARGETS)
def test_no_kept_input_crashes_it(target: str) -> None:
    for data in corpus.kept(target):
        TARGETS[target](data)


def test_the_corpus_reaches_its_targets() -> None:
    runs = [run for data in corpus.kept("whole") for run in whole(data)]
    assert any(run.steps.num_rows for run in runs)
    assert any(run.events for run in runs)
    assert any(BETWEEN_FILES in data for data in corpus.kept("whole"))


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in corpus.KEPT.iterdir()) < 300_000


def test_the_same_inputs_are_the_same_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "KEPT", tmp_path / "corpus")
    inputs = [b"", b"two", b"one\n" * 1000]
    first = corpus.keep("it", inputs).read_bytes()
    assert sorted(corpus.kept("it")) == sorted(inputs)
    assert corpus.keep("it", inputs[::-1]).read_bytes() == first
    assert corpus.kept("another") == []


@pytest.mark.parametrize("data", [b"", b"no line end", b"Epoch 1/3\n3/3 - 17s - loss: 1.9\n" * 20])
def test_every_change_gives_bytes_again(data: bytes) -> None:
    changed = set()
    for number, change in enumerate(changes([b"another\nlog\n"])):
        changed |= {change(data, random.Random(number + seed)) for seed in range(20)}
    assert len(changed) > 10


def test_only_inputs_that_reach_something_new_are_kept() -> None:
    log = b"cycle_time_ms,tensor_fusion_threshold,score\n" + b"1,2,3\n" * 5
    inputs = [log + b"1,2,3\n", b"none either", log, b"no log"]
    assert fewest(TARGETS["autotune"], inputs) == [b"no log", log]
