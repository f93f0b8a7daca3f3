"""Advice is for the user's own framework and set-up, and only given on evidence in logs."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analysis.advice_setups import (
    DDP,
    FSDP,
    KERAS,
    ON_GPUS,
    TORCH,
    every_piece,
    moved,
    straggler,
    text,
)
from simulator import Fixed, simulate
from simulator import Job as SimulatedJob
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.advice.advise import between_steps, fuller_compute
from stallscope.analysis.advice.communication_advice import for_allreduce
from stallscope.analysis.advice.input_advice import for_late_input, for_slower_compute
from stallscope.analysis.advice.training_advice import for_imbalance
from stallscope.analysis.gains.what_if import Advice, in_words
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.setup import Setup
from stallscope.parsers import read
from stallscope.run import Run

CLEAN = Job(ranks=4, steps=300, allreduce_ms=0.5)
TF_FACTS: dict[str, Any] = {
    "framework": "tensorflow",
    "versions": {"tensorflow": "2.15.1", "keras": "2.15.0", "horovod": "0.28.1"},
    "devices": ["CPU"],
    "cpu_count": 16,
    "cpus_allowed": 16,
}
SHELL = re.compile(
    r"(HOROVOD_\w+=\S+|OMP_NUM_THREADS=\d+|unset |horovodrun |torchrun |stallscope |python -c |sudo ip )"
)


def analysis_of(folder: Path, job: Job, baseline: Job | None = None) -> Analysis:
    run = run_of_job(folder / "run", job)
    if baseline is None:
        return analyse(run)
    write_job(folder / "base", replace(baseline, facts={**baseline.facts, "synthetic": True}))
    return analyse(run, read(str(folder / "base"))[0])


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """Return steps of 200 ms, of which 50 are exposed allreduce."""
    job = SimulatedJob(ranks=2, steps=200, input_ms=2, compute_ms=146, other_ms=2)
    steady = analyse(simulate(replace(job, communication=Fixed(50.0))).run).steady
    assert steady is not None
    return steady


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(SimulatedJob(ranks=4, steps=30)).run


# -- how it reads --------------------------------------------------------------------------------

FULL = Advice(
    "Shard first",
    "dataset = dataset.shard(2, 0)",
    "Steps are shorter.",
    "Not if ranks share files.",
    reason="Reading takes longest.",
    detail=": before shuffling",
    note="Or read less.",
)


def test_advice_becomes_one_text_with_its_line_as_code() -> None:
    assert str(FULL) == (
        "Reading takes longest. Shard first: before shuffling: `dataset = dataset.shard(2, 0)`. Steps "
        "are shorter. Not if ranks share files. Or read less."
    )
    assert str(Advice("Look")) == "Look."
    assert str(Advice("Look", detail="; it is late")) == "Look; it is late."
    assert in_words((Advice("Look"), Advice("Unset it", "unset A"))) == "Look. Unset it: `unset A`."


def test_what_stands_out_ends_its_sentence_unless_more_follows() -> None:
    assert (FULL.emphasised, FULL.rest) == ("Shard first", ": before shuffling:")
    assert (Advice("Look").emphasised, Advice("Look").rest) == ("Look.", "")
    assert Advice("Unset it", "unset A").emphasised == "Unset it:"
    assert FULL.caveat == "Steps are shorter. Not if ranks share files. Or read less."


def test_every_piece_has_sentences_and_a_line_of_python_or_shell() -> None:
    seen = {piece for _, piece in every_piece()}
    assert len(seen) > 40
    for piece in seen:
        assert not piece.sentence.endswith(".")
        sentences = (piece.gain, piece.unless, piece.note)
        assert all(part == "" or part.endswith(".") for part in sentences)
        # The action is one clause: what is before or after it has fields of its own.
        assert not re.search(r"[.:;] ", piece.action)
        assert piece.reason == "" or piece.reason.endswith((".", ":"))
        assert piece.detail == "" or piece.detail.startswith((": ", "; ", " ("))
        assert "\n" not in str(piece)
        if piece.line and not SHELL.match(piece.line):
            ast.parse(piece.line)


def test_the_ends_of_an_interval_differ_as_printed() -> None:
    ledger = analyse(simulate(SimulatedJob(ranks=4, steps=120, seed=1)).run).steady
    assert ledger is not None
    pieces = for_allreduce(DDP, ledger, None)
    intervals = re.findall(r"\(95%: ([\d.]+)–([\d.]+)×\)", " ".join(map(str, pieces)))
    assert intervals
    assert all(float(low) < float(high) for low, high in intervals)


def test_no_piece_is_for_another_framework() -> None:
    for setup, piece in every_piece():
        foreign = {"keras": ("torch", "DataLoader"), "torch": ("tf.", "keras")}
        assert not any(word in piece.line for word in foreign.get(str(setup.framework), ()))
        if setup.library == "ddp":
            assert "hvd." not in piece.line
            assert "horovod" not in piece.line


def test_facts_become_the_set_up(tmp_path: Path) -> None:
    write_job(tmp_path, replace(CLEAN, hosts=("a", "b"), facts={**TF_FACTS, "devices": ["GPU"]}))
    setup = Setup.of(read(str(tmp_path))[0])
    assert (setup.framework, setup.library, setup.gpu) == ("keras", "horovod", True)
    assert setup.hosts == {"a": 2, "b": 2}
    assert (setup.cpu_cores, setup.ranks_on_machine, setup.spare_cores) == (16, 2, 7)


def test_invalid_facts_are_unknown(tmp_path: Path) -> None:
    odd = {"framework": 7, "versions": [], "devices": "GPU", "cpu_count": "x", "settings": 1}
    write_job(tmp_path, replace(CLEAN, facts=odd))
    setup = Setup.of(read(str(tmp_path))[0])
    assert (setup.framework, setup.library, setup.gpu, setup.cpu_cores) == (None,) * 4
    assert setup.settings == {}


def test_ranks_of_pytorch_without_horovod_reduce_with_ddp(tmp_path: Path) -> None:
    facts = {"framework": "pytorch", "versions": {"torch": "2.13.0", "horovod": None}}
    write_job(tmp_path / "many", replace(CLEAN, facts=facts))
    write_job(tmp_path / "one", replace(CLEAN, ranks=1, facts=facts))
    assert Setup.of(read(str(tmp_path / "many"))[0]).library == "ddp"
    assert Setup.of(read(str(tmp_path / "one"))[0]).library is None


# -- input ---------------------------------------------------------------------------------------


def test_late_input_in_keras_gets_advice_on_tf_data() -> None:
    advice_text = text(for_late_input(KERAS))
    assert "`dataset = dataset.prefetch(tf.data.AUTOTUNE)`" in advice_text
    assert "num_parallel_calls=tf.data.AUTOTUNE" in advice_text
    assert "dataset.shard(hvd.size(), hvd.rank())" in advice_text
    assert "dataset.cache()" in advice_text
    assert "own: 4 ranks" not in advice_text


def test_data_used_once_is_not_cached() -> None:
    assert "cache" not in text(for_late_input(replace(KERAS, epochs=1)))


def test_without_spare_cpu_cores_parallel_maps_are_not_advised() -> None:
    crowded = replace(KERAS, cpu_cores=4)
    advice_text = text(for_late_input(crowded))
    assert "4 ranks on a host have 4 CPU cores" in advice_text
    assert "num_parallel_calls" not in advice_text
    # On accelerators the ranks' own work does not need them.
    assert "4 ranks on a host" not in text(for_late_input(replace(crowded, gpu=True)))


@pytest.mark.parametrize(
    ("workers", "cpu_cores", "expected"),
    [
        (0, 16, "it has none: `DataLoader(data, batch_size=32, num_workers=3, "),
        (2, 16, "it has 2: `DataLoader(data, batch_size=32, num_workers=3, "),
        (3, 16, "as many workers (3) as CPU cores"),
        (0, 4, "Make each batch cheaper: no CPU core is left for workers"),
        (8, 16, "8 for each of 4 ranks on a host are more than its 16 CPU cores"),
        (None, 16, "is not a DataLoader: `DataLoader(data, batch_size=32, num_workers=3, "),
        (4, None, "it has 4: `DataLoader(data, batch_size=32, num_workers=8, "),
    ],
)
def test_workers_are_limited_by_cpu_cores(
    workers: int | None, cpu_cores: int | None, expected: str
) -> None:
    setup = replace(TORCH, loader_workers=workers, cpu_cores=cpu_cores)
    assert expected in text(for_late_input(setup))


def test_memory_is_pinned_for_accelerators_only() -> None:
    assert "pin_memory=True" in text(for_late_input(replace(TORCH, gpu=True)))
    assert "pin_memory" not in text(for_late_input(TORCH))


@pytest.mark.parametrize(
    ("stage", "first"),
    [
        ("read", "interleave(tf.data.TFRecordDataset"),
        ("decode", "dataset.map(decode"),
        ("augment", "because every epoch draws new random values"),
        ("batch", "dataset.batch(32, drop_remainder=True).map("),
    ],
)
def test_of_measured_stages_the_longest_comes_first(stage: str, first: str) -> None:
    assert first in str(for_late_input(KERAS, stage)[0])


def test_augmentation_goes_to_the_accelerator_or_gets_more_workers() -> None:
    (first, *rest) = for_late_input(TORCH, "augment")
    assert "cannot be done beforehand" in first.reason
    assert "num_workers=3" in text(rest)
    assert "augment" not in text(for_late_input(TORCH, "decode"))


def test_loaders_that_take_computes_cpu_cores_get_fewer() -> None:
    assert "private_threadpool_size = 2" in text(for_slower_compute(KERAS))
    assert "num_workers=4" in text(for_slower_compute(replace(TORCH, loader_workers=8)))
    assert "num_workers" not in text(for_slower_compute(replace(TORCH, loader_workers=1)))


def test_an_unknown_framework_gets_words_and_no_lines(ledger: Ledger) -> None:
    unknown = replace(KERAS, framework=None, library=None)
    late, slower = for_late_input(unknown), for_slower_compute(unknown)
    assert "Prepare batches ahead of training" in text(late)
    assert "fewer loader threads" in text(slower)
    assert not any(piece.line for piece in (*late, *slower, *for_allreduce(unknown, ledger, None)))
    assert "Prepare batches ahead of training" not in text(for_late_input(KERAS))


# -- communication -------------------------------------------------------------------------------


def test_half_of_the_bytes_gains_what_the_replay_predicts(ledger: Ledger) -> None:
    (fp16,) = [piece for piece in for_allreduce(KERAS, ledger, None) if "fp16" in piece.line]
    assert fp16.line == (
        "optimizer = hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16)"
    )
    speedup, low, high = map(float, re.findall(r"\d\.\d\d", fp16.gain))
    # 25 of about 200 ms.
    assert speedup == pytest.approx(200 / 175, abs=0.02)
    assert low <= speedup <= high


def test_fewer_bytes_are_not_advised_if_bytes_do_not_cost(ledger: Ledger) -> None:
    assert "fp16" in text(for_allreduce(KERAS, ledger, moved(100.0)))
    # The network is known, and needs 15 ms of 100.
    assert "fp16" not in text(for_allreduce(KERAS, ledger, moved(100.0, network=10.0)))
    # 0.3 MB within one host, in 4 ms: memory is faster than that.
    assert "fp16" not in text(for_allreduce(KERAS, ledger, moved(4.0, size=340_000)))
    # They are halves already.
    halves = replace(KERAS, gradient_bytes=2 * 25_000_000)
    assert "fp16" not in text(for_allreduce(halves, ledger, None))


def test_accumulation_is_only_advised_if_not_in_use(ledger: Ledger) -> None:
    assert "backward_passes_per_step=2, average_aggregated_gradients=True" in (
        text(for_allreduce(KERAS, ledger, None))
    )
    assert "named_parameters=model.named_parameters(), backward_passes_per_step=2" in (
        text(for_allreduce(TORCH, ledger, None))
    )
    assert "with model.no_sync():" in text(for_allreduce(DDP, ledger, None))
    accumulating = text(for_allreduce(replace(KERAS, passes=4), ledger, None))
    assert "backward_passes_per_step" not in accumulating
    assert "a larger batch per rank" in accumulating


def test_shards_are_advised_on_as_shards(ledger: Ledger) -> None:
    advice_text = text(for_allreduce(FSDP, ledger, None))
    assert "mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)" in advice_text
    assert "reshard_after_forward=False" in advice_text
    assert "a larger batch per rank" in advice_text
    for of_ddp in ("no_sync", "register_comm_hook", "bucket_cap_mb"):
        assert of_ddp not in advice_text


def test_settings_are_measured_by_the_autotuner_and_then_fixed(ledger: Ledger) -> None:
    advice_text = text(for_allreduce(KERAS, ledger, None))
    assert "`HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv`" in advice_text
    assert "160 gradients of 100.0 MB together" in advice_text
    tuning = replace(KERAS, settings={"HOROVOD_AUTOTUNE": "1"})
    advice_text = text(for_allreduce(tuning, ledger, None))
    assert "stallscope tune RUN" in advice_text
    assert "HOROVOD_AUTOTUNE=1" not in advice_text
    assert "HOROVOD" not in text(for_allreduce(DDP, ledger, None))


def test_ddp_gets_larger_buckets_if_there_are_several(ledger: Ledger) -> None:
    assert "bucket_cap_mb=100" in text(for_allreduce(DDP, ledger, None))
    small = replace(DDP, gradient_bytes=10_000_000)
    assert "bucket_cap_mb" not in text(for_allreduce(small, ledger, None))


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, True),
        ({"gpu": False}, False),
        ({"hosts": {"alpha": 8}}, False),
        ({"hosts": {"alpha": 5, "beta": 3}}, False),
        ({"hosts": {f"host{n}": 1 for n in range(8)}}, False),
        ({"settings": {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}}, False),
        ({"library": "ddp", "framework": "torch"}, False),
    ],
)
def test_two_levels_are_for_several_accelerators_on_each_of_several_hosts(
    ledger: Ledger, changes: dict[str, Any], given: bool
) -> None:
    setup = replace(KERAS, **{**ON_GPUS, **changes})
    assert ("HOROVOD_HIERARCHICAL_ALLREDUCE=1" in text(for_allreduce(setup, ledger, None))) == given


def test_nccl_is_advised_on_accelerators_only(ledger: Ledger) -> None:
    on_gpus = replace(TORCH, **ON_GPUS)
    assert "import horovod.torch as hvd; print(hvd.nccl_built())" in (
        text(for_allreduce(on_gpus, ledger, None))
    )
    assert "nccl" not in text(for_allreduce(TORCH, ledger, None))


def test_an_unknown_network_is_to_be_measured(ledger: Ledger) -> None:
    two = replace(KERAS, hosts={"alpha": 2, "beta": 2})
    assert "horovodrun … stallscope netcheck RUN" in text(for_allreduce(two, ledger, moved(100.0)))
    assert "--network-bandwidth" not in text(for_allreduce(two, ledger, moved(100.0, network=1.6)))
    assert "--network-bandwidth" not in text(for_allreduce(KERAS, ledger, moved(100.0)))


# -- imbalance -----------------------------------------------------------------------------------


def test_a_host_is_replaced_or_left_out(run: Run) -> None:
    late = straggler(ranks=(4, 5, 6, 7), hosts=("beta",))
    setup = replace(KERAS, ranks=12, hosts={"alpha": 4, "beta": 4, "gamma": 4})
    advice_text = text(for_imbalance(run, setup, (late,)))
    assert "Replace host beta, or leave it out" in advice_text
    assert "`horovodrun -np 8 -H alpha:4,gamma:4 python train.py`" in advice_text
    odd = replace(setup, hosts={"alpha; rm -rf /": 4, "beta": 4})
    assert "horovodrun" not in text(for_imbalance(run, odd, (late,)))
    assert "Replace" not in text(for_imbalance(run, setup, (straggler(),)))


def test_differences_of_a_late_rank_are_named(run: Run) -> None:
    def with_cores(*counts: int) -> Run:
        logs = tuple(
            replace(log, facts={**log.facts, "cpus_allowed": counts[log.rank]}) for log in run.logs
        )
        return replace(run, logs=logs)

    advice_text = text(for_imbalance(with_cores(8, 2, 8, 8), KERAS, (straggler(),)))
    assert "Start rank 1 like the others; available CPU cores: 2 there, 8" in advice_text
    for alike in (with_cores(8, 8, 8, 8), with_cores(8, 2, 4, 8), run):
        assert "Start rank 1" not in text(for_imbalance(alike, KERAS, (straggler(),)))


def test_uneven_work_is_evened_out_in_the_users_framework(run: Run) -> None:
    late = (straggler(work=1.4),)
    assert "batch(32, drop_remainder=True)" in text(for_imbalance(run, KERAS, late))
    assert "num_replicas=hvd.size(), rank=hvd.rank(), drop_last=True" in (
        text(for_imbalance(run, TORCH, late))
    )
    assert "DistributedSampler(data, drop_last=True)" in text(for_imbalance(run, DDP, late))
    assert "drop_remainder" not in text(for_imbalance(run, KERAS, (straggler(),)))


def test_lateness_that_moves_around_may_come_from_lengths(run: Run) -> None:
    moves = straggler(ranks=(), pattern="rotating")
    assert "bucket_by_sequence_length" in text(for_imbalance(run, KERAS, (moves,)))
    assert "bucket" not in text(for_imbalance(run, TORCH, (moves,)))
    assert "bucket" not in text(for_imbalance(run, KERAS, (straggler(),)))
    # Loaders that stall in turn are treated as input.
    stalls = straggler("input", ranks=(), pattern="rotating")
    assert text(for_imbalance(run, KERAS, (stalls,))) == ""


# -- between steps, and compute ------------------------------------------------------------------


def test_several_steps_in_a_call_are_for_keras_with_one() -> None:
    assert "steps_per_execution=10" in text(between_steps(KERAS))
    assert "steps_per_execution" not in text(between_steps(replace(KERAS, steps_per_execution=8)))
    assert "steps_per_execution" not in text(between_steps(TORCH))


def test_mixed_precision_is_for_accelerators() -> None:
    assert "mixed_float16" in text(fuller_compute(replace(KERAS, gpu=True)))
    assert "mixed_float16" not in text(fuller_compute(KERAS))


# -- of whole runs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "baseline", "line"),
    [
        (replace(CLEAN, input_ms=13.0), None, "dataset.prefetch(tf.data.AUTOTUNE)"),
        (replace(CLEAN, other_ms=9.0), None, "steps_per_execution=10"),
        (replace(CLEAN, allreduce_ms=15.0), None, "HOROVOD_AUTOTUNE=1"),
        (replace(CLEAN, slow={(1, "compute"): 6.0}), None, "Look at this rank's device"),
        (replace(CLEAN, compute_ms=26.0), CLEAN, "private_threadpool_size"),
        (replace(CLEAN, seed=2), CLEAN, "forward and backward passes: only"),
    ],
)
def test_verdicts_come_with_their_own_advice(
    tmp_path: Path, job: Job, baseline: Job | None, line: str
) -> None:
    base = None if baseline is None else replace(baseline, facts=TF_FACTS)
    analysis = analysis_of(tmp_path, replace(job, facts=TF_FACTS), base)
    assert line in in_words(analysis.bottleneck.advice)


def test_without_findings_there_is_no_advice(tmp_path: Path) -> None:
    assert analysis_of(tmp_path, replace(CLEAN, facts=TF_FACTS)).bottleneck.advice == ()
