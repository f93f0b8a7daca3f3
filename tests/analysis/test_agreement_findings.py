"""Findings on state that ranks must share, and on how they share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.findings import CLEAN, codes, finding_of, with_facts, with_steps
from support.step_logs import run_of_job

from stallscope.analysis.gains.what_if import in_words
from stallscope.run import Run

KERAS: dict[str, Any] = {
    "framework": "tensorflow",
    "versions": {"tensorflow": "2.15.1", "horovod": "0.28.1"},
    "gradients_reduced": True,
}
TORCH = {**KERAS, "framework": "pytorch", "versions": {"torch": "2.13.0", "horovod": "0.28.1"}}
DDP = {**TORCH, "versions": {"torch": "2.13.0", "horovod": None}}


def trained(folder: Path, facts: Mapping[str, Any], **more: Any) -> Run:
    return run_of_job(folder, replace(CLEAN, facts={**facts, **more}))


# -- weights -------------------------------------------------------------------------------------


def weights(*values: float, after: int = 1, of: str = "dense/kernel") -> dict[str, Any]:
    return {"weights": {"after": after, "of": of, "values": list(values)}}


SAME = weights(0.25, -0.5, 0.125)


def test_weights_that_differ_are_an_error(tmp_path: Path) -> None:
    run = trained(tmp_path, KERAS, **SAME)
    assert codes(run) == []
    finding = finding_of(with_facts(run, weights(0.5, -0.5, 0.125), [2, 3]), "weights_differ")
    assert finding.severity == "error"
    assert "starts with 0.25 on rank 0 and with 0.5 on rank 2" in finding.evidence
    assert "ranks 2 and 3 of 4 ranks differ from rank 0" in finding.evidence
    assert "among the callbacks" not in finding.evidence
    assert "BroadcastGlobalVariablesCallback(0)" in in_words(finding.advice)


def test_a_missing_broadcast_is_reported_if_callbacks_are_known(tmp_path: Path) -> None:
    run = trained(tmp_path, KERAS, **SAME, callbacks=[{"name": "keras.History"}])
    differ = with_facts(run, weights(0.5, -0.5, 0.125), [1])
    assert "No callback broadcasts them" in finding_of(differ, "weights_differ").evidence
    broadcast = {"callbacks": [{"name": "horovod.BroadcastGlobalVariablesCallback"}]}
    some = with_facts(differ, broadcast)
    assert "No callback broadcasts them" not in finding_of(some, "weights_differ").evidence


@pytest.mark.parametrize(
    ("facts", "line"),
    [(TORCH, "hvd.broadcast_parameters("), (DDP, "torch.distributed.broadcast(")],
)
def test_advice_on_broadcasts_is_for_the_framework(
    tmp_path: Path, facts: dict[str, Any], line: str
) -> None:
    run = with_facts(trained(tmp_path, facts, **SAME), weights(1.0, 1.0, 1.0), [1])
    assert line in in_words(finding_of(run, "weights_differ").advice)


@pytest.mark.parametrize(
    "theirs",
    [
        {"weights": None},
        weights(0.2500001, -0.5, 0.125),
        weights(9.0, 9.0, 9.0, after=2),
        weights(9.0, 9.0, 9.0, of="other/kernel"),
        weights(9.0, 9.0),
        weights(float("nan"), 9.0, 9.0),
        {"weights": {"after": "x", "of": 3, "values": "many"}},
    ],
)
def test_incomparable_weights_are_not_compared(tmp_path: Path, theirs: dict[str, Any]) -> None:
    assert codes(with_facts(trained(tmp_path, KERAS, **SAME), theirs, [1])) == []


def test_ranks_that_do_not_reduce_have_separate_models(tmp_path: Path) -> None:
    run = with_facts(trained(tmp_path, KERAS, **SAME), weights(1.0, 1.0, 1.0), [1])
    assert codes(with_facts(run, {"gradients_reduced": None})) == []
    assert codes(with_facts(run, {"gradients_reduced": False})) == ["gradients_not_reduced"]


# -- rates ---------------------------------------------------------------------------------------


def test_different_rates_are_reported_with_the_first_epoch(tmp_path: Path) -> None:
    run = trained(tmp_path, TORCH, learning_rates=[[1, 0.1]])
    assert codes(run) == []
    changed = {"learning_rates": [[1, 0.05]]}
    finding = finding_of(with_facts(run, changed, [3]), "learning_rates_differ")
    assert finding.severity == "error"
    assert "Epoch 1 started with a rate of 0.1 on rank 0 and of 0.05 on rank 3" in finding.evidence
    assert "hvd.allreduce(loss" in in_words(finding.advice)


@pytest.mark.parametrize(
    "theirs",
    [
        None,
        [],
        [[1, 0.1000000001]],
        # Later than any known start of an epoch of the others.
        [[1, 0.1], [7, 0.05]],
        [["x", 0.1], 3],
    ],
)
def test_equal_or_unknown_rates_give_no_finding(tmp_path: Path, theirs: Any) -> None:
    run = trained(tmp_path, TORCH, learning_rates=[[1, 0.1]])
    assert codes(with_facts(run, {"learning_rates": theirs}, [1])) == []


def test_a_rate_that_may_be_lost_with_other_lines_is_unknown(tmp_path: Path) -> None:
    run = trained(tmp_path, TORCH, learning_rates=[[0, 0.1], [1, 0.05]])
    kept = with_facts(run, {"learning_rates": [[0, 0.1]]}, [1])
    assert codes(kept) == ["learning_rates_differ"]
    lossy = with_steps(
        kept, lambda row: None if row["rank"] == 1 and 90 < row["step"] < 105 else row
    )
    assert codes(lossy) == []


# -- metrics -------------------------------------------------------------------------------------


PLATEAU = {"name": "keras.ReduceLROnPlateau", "monitor": "val_loss"}
STOPPING = {"name": "keras.EarlyStopping", "monitor": "val_loss"}
BEST = {"name": "keras.ModelCheckpoint", "monitor": "val_loss"}
AVERAGE = {"name": "horovod.MetricAverageCallback"}
LOGGER = {"name": "stallscope.StepLogger"}
OWN = {"name": "mine.AveragesItself"}


@pytest.mark.parametrize(
    ("callbacks", "severity", "expected"),
    [
        ([LOGGER, PLATEAU], "warning", "ReduceLROnPlateau by val_loss on ranks 0–3"),
        ([PLATEAU, STOPPING, AVERAGE], "warning", "only after them"),
        ([STOPPING], "warning", "not among the callbacks"),
        ([OWN, PLATEAU, AVERAGE], "warning", "only after them"),
        ([PLATEAU, OWN], "warning", "not among the callbacks"),
        ([BEST], "info", "best for that rank's data only"),
    ],
)
def test_metrics_must_be_averaged_before_callbacks_use_them(
    tmp_path: Path, callbacks: list[Any], severity: str, expected: str
) -> None:
    finding = finding_of(trained(tmp_path, KERAS, callbacks=callbacks), "metrics_not_averaged")
    assert finding.severity == severity
    assert expected in finding.evidence
    misplaced = "Move MetricAverageCallback before all callbacks that use a metric."
    missing = "`callbacks.insert(0, hvd.callbacks.MetricAverageCallback())`"
    assert (misplaced if AVERAGE in callbacks else missing) in in_words(finding.advice)


@pytest.mark.parametrize(
    "callbacks",
    [
        [AVERAGE, PLATEAU, STOPPING, BEST],
        # It may average metrics for the callbacks after it.
        [OWN, PLATEAU],
        [LOGGER, {"name": "keras.ModelCheckpoint"}],
        [],
        None,
        ["x", {"monitor": 3}],
    ],
)
def test_callbacks_as_they_should_be(tmp_path: Path, callbacks: Any) -> None:
    assert codes(trained(tmp_path, KERAS, callbacks=callbacks)) == []


def test_one_rank_has_all_metrics(tmp_path: Path) -> None:
    job = replace(CLEAN, ranks=1, facts={**KERAS, "callbacks": [PLATEAU]})
    assert codes(run_of_job(tmp_path, job)) == []


# -- broadcasts ----------------------------------------------------------------------------------


def fits(folder: Path, *broadcasts: int | None) -> Run:
    """Return one log per rank and fit, each with so many broadcasts."""
    run = trained(folder, KERAS)
    logs = tuple(
        replace(log, part=part, facts={**log.facts, "broadcasts": count, "parameters": 1234})
        for part, count in enumerate(broadcasts)
        for log in run.logs
    )
    return replace(run, logs=logs)


def test_a_broadcast_in_every_fit_is_reported_with_their_number(tmp_path: Path) -> None:
    finding = finding_of(fits(tmp_path, 1, 1, 1), "broadcast_in_every_fit")
    assert finding.severity == "info"
    assert finding.evidence.startswith("3 fits of this job each broadcast the model of 1,234")


@pytest.mark.parametrize("broadcasts", [(1,), (1, 1), (1, 0, 0, 0), (None, None, None)])
def test_single_broadcasts_give_no_finding(tmp_path: Path, broadcasts: tuple[Any, ...]) -> None:
    assert "broadcast_in_every_fit" not in codes(fits(tmp_path, *broadcasts))


def test_a_log_that_continues_in_other_files_is_one_fit(tmp_path: Path) -> None:
    run = fits(tmp_path, 1, 1, 1)
    logs = tuple(
        replace(log, facts={**log.facts, "continues": True}) if log.part else log
        for log in run.logs
    )
    assert "broadcast_in_every_fit" not in codes(replace(run, logs=logs))


# -- the order of samples ------------------------------------------------------------------------


def drawn(*epochs: int) -> list[dict[str, Any]]:
    name = "DistributedSampler"
    return [{"sampler": name, "shuffles": True, "drawn": [0, epoch]} for epoch in epochs]


IN_ORDER = {"sampler": "SequentialSampler", "shuffles": False}


@pytest.mark.parametrize(
    ("facts", "severity", "evidence", "line"),
    [
        ({**KERAS, "shuffled": "alike"}, "warning", "shuffled once", ".cache().shuffle("),
        (
            {**KERAS, "shuffled": "never"},
            "info",
            "nothing shuffles samples before training",
            "dataset.shuffle(10_000)`",
        ),
        ({**TORCH, "orders": drawn(0, 0)}, "warning", "set_epoch", "sampler.set_epoch(epoch)"),
        (
            {**DDP, "orders": [IN_ORDER] * 2},
            "info",
            "nothing shuffles samples before training",
            "DistributedSampler(data",
        ),
    ],
)
def test_epochs_in_the_same_order(
    tmp_path: Path, facts: dict[str, Any], severity: str, evidence: str, line: str
) -> None:
    finding = finding_of(trained(tmp_path, facts), "same_order_every_epoch")
    assert finding.severity == severity
    assert finding.evidence.startswith("On ranks 0–3: ")
    assert evidence in finding.evidence
    assert line in in_words(finding.advice)


@pytest.mark.parametrize(
    "facts",
    [
        {"shuffled": "anew"},
        {"shuffled": None},
        {"orders": drawn(0, 1)},
        {"orders": drawn(0)},
        {"orders": [None, None]},
        {"orders": [IN_ORDER, *drawn(0)]},
        {"orders": "many"},
        {**KERAS, "shuffled": "never", "synthetic": True},
    ],
)
def test_changing_or_unknown_orders_give_no_finding(tmp_path: Path, facts: dict[str, Any]) -> None:
    assert codes(trained(tmp_path, TORCH, **facts)) == []


def test_one_epoch_has_one_order(tmp_path: Path) -> None:
    job = replace(CLEAN, epochs=1, facts={**KERAS, "shuffled": "never"})
    assert codes(run_of_job(tmp_path, job)) == []


# -- sparse gradients ----------------------------------------------------------------------------


def gathered(rows: int | None, vocabulary: int = 1000) -> dict[str, Any]:
    tensor = {"name": "embedding", "shape": [vocabulary, 64], "itemsize": 4, "rows": rows}
    return {"sparse_gradients": {"count": 1, "largest": [tensor]}}


def test_gathering_more_bytes_than_the_whole_is_a_finding(tmp_path: Path) -> None:
    finding = finding_of(trained(tmp_path, KERAS, **gathered(4000)), "sparse_gradients")
    assert finding.severity == "warning"
    # 3 other ranks × 4,000 rows of 264 bytes, against 2 · ¾ of 256 kB.
    assert "embedding (1,000 × 64) each rank sends 4,000 rows" in finding.evidence
    assert "receives 3.17 MB from the others" in finding.evidence
    assert "it would be 0.384 MB" in finding.evidence
    assert "sparse_as_dense=True" in in_words(finding.advice)
    assert "Not for large vocabularies" in in_words(finding.advice)


def test_unknown_rows_give_the_limit(tmp_path: Path) -> None:
    finding = finding_of(trained(tmp_path, TORCH, **gathered(None)), "sparse_gradients")
    assert finding.severity == "info"
    # 2 · 256,000 / (4 · 264)
    assert "looks up 485 rows in a step" in finding.evidence
    assert "named_parameters=model.named_parameters(), sparse_as_dense" in in_words(finding.advice)


def test_ddp_is_advised_to_use_a_dense_embedding(tmp_path: Path) -> None:
    finding = finding_of(trained(tmp_path, DDP, **gathered(None)), "sparse_gradients")
    assert "`embedding = torch.nn.Embedding(1000, 64, sparse=False)`" in in_words(finding.advice)


@pytest.mark.parametrize(
    "facts",
    [
        gathered(400),
        gathered(4000, vocabulary=1_000_000),
        {"sparse_gradients": {"count": 0, "largest": []}},
        {"sparse_gradients": {"count": 1, "largest": [{"name": "x", "shape": "?"}]}},
        {"sparse_gradients": {"count": "many"}},
        {"sparse_gradients": None},
    ],
)
def test_well_gathered_or_dense_gradients_give_no_finding(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    assert codes(trained(tmp_path, KERAS, **facts)) == []


# -- encryption ----------------------------------------------------------------------------------


def test_gloo_with_tls_is_a_finding(tmp_path: Path) -> None:
    tls = {"settings": {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, "reduces_with": ["gloo"]}
    finding = finding_of(trained(tmp_path, DDP, **tls), "traffic_encrypted")
    assert "GLOO_DEVICE_TRANSPORT=TCP_TLS on all ranks" in finding.evidence
    assert "`unset GLOO_DEVICE_TRANSPORT`" in in_words(finding.advice)


@pytest.mark.parametrize(
    "facts",
    [
        {"settings": {"GLOO_DEVICE_TRANSPORT": "TCP"}, "reduces_with": ["gloo"]},
        {"settings": {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, "reduces_with": ["nccl"]},
        {"settings": {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}},
    ],
)
def test_other_traffic_gives_no_finding(tmp_path: Path, facts: dict[str, Any]) -> None:
    assert codes(trained(tmp_path, DDP, **facts)) == []
