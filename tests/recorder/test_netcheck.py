"""Netcheck without a network: its run, its sizes, its rounds and its file, on every Python."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recorder.processes import interpreter

from stallscope.collector.netcheck.check import RefusedError, check, differences, find_run
from stallscope.collector.netcheck.horovod_ranks import join_with_horovod
from stallscope.collector.netcheck.joining import join, library_of
from stallscope.collector.netcheck.measuring import (
    Measured,
    MeasuredPair,
    first_ranks,
    measure,
    turns_of,
)
from stallscope.collector.netcheck.ranks import Exchange, Ranks, Run
from stallscope.collector.netcheck.result_file import document, lines_of, rate_of, save
from stallscope.collector.netcheck.sizes import Gradients, buckets, gradients_of, mbit_s
from stallscope.collector.recorder.job.job_facts import size_counts
from stallscope.collector.recorder.step_log.line_format import facts_line, file_name, header
from stallscope.errors import NotFoundError, UnwritableError, UsageError

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "collector" / "netcheck").glob("*.py")),
    ROOT / "src" / "stallscope" / "cli" / "netcheck.py",
    ROOT / "src" / "stallscope" / "cli" / "main.py",
    ROOT / "src" / "stallscope" / "errors.py",
    ROOT / "src" / "stallscope" / "__main__.py",
]
#: Bytes per µs, and the µs before them.
RATE, LATENCY = 100.0, 50.0


class PretendedRanks(Ranks):
    """The first of several ranks; the others take the same time, by a simulated clock."""

    framework, reduced_by = "torch", "horovod"

    def __init__(self, hosts: Sequence[str], slow: str | None = None, rate: float = RATE) -> None:
        self.rank, self.size = 0, len(hosts)
        self.reduces_with, self.versions = ["gloo"], {"torch": "2"}
        self.names = list(hosts)
        self.slow, self.rate = slow, rate
        self.now_ns = 0
        self.counts: dict[str, int] = {}

    def _pass(self, us: float) -> None:
        self.now_ns += int(us * 1000)

    def allreduce(self, name: str, sizes: Sequence[int], apart: bool = False) -> Run:
        def run() -> None:
            self.counts[name] = self.counts.get(name, 0) + 1
            self._pass(LATENCY * (len(sizes) if apart else 1) + sum(sizes) / self.rate)

        return run

    def exchange(self, exchanges: Sequence[Exchange]) -> Run:
        rates = [
            (self.rate / 10 if self.slow in (self.names[first], self.names[second]) else self.rate)
            for first, second, _ in exchanges
        ]
        us = [size / rate for (_, _, size), rate in zip(exchanges, rates, strict=True)]
        return lambda: self._pass(LATENCY + max(us))

    def broadcast(self, value: Any) -> Any:
        return json.loads(json.dumps(value))

    def collect(self, value: Any) -> list[Any]:
        return [json.loads(json.dumps(value))] * self.size

    def close(self) -> None:
        pass


def measured_by(ranks: PretendedRanks, seconds: float, *sizes: list[int]) -> Measured:
    gradients = Gradients("sizes", list(sizes)) if sizes else None
    return measure(ranks, ranks.names, gradients, None, seconds, lambda: ranks.now_ns)


def write_log(
    folder: Path, rank: int, part: int = 0, *, late: dict[str, Any] | None = None, **facts: Any
) -> None:
    folder.mkdir(exist_ok=True)
    began = {"anchor": {"wall_ns": facts.pop("began", 1)}}
    text = header({"run_id": "one", "rank": rank, "host": f"h{rank + 1}", **began, **facts})
    text += facts_line({"gradient_bytes": 8}) if late is None else facts_line(late)
    (folder / file_name(rank, 0, part)).write_text(text + '#facts {"gradient_by')


def test_the_newest_run_is_found_with_later_facts_of_its_first_rank(tmp_path: Path) -> None:
    write_log(tmp_path, 0, began=5)
    write_log(tmp_path, 0, 1, run_id="two", began=7, size=2, late={"gradient_sizes": [[8, 3]]})
    write_log(tmp_path, 1, 1, run_id="two", began=6, late={"gradient_sizes": [[9, 3]]})
    (tmp_path / "rank-00002.0.0.steps.csv").write_text("no header\n")
    run = find_run(str(tmp_path))
    assert (run.run_id, run.facts["size"], run.hosts) == ("two", 2, ["h1", "h2"])
    assert run.facts["gradient_sizes"] == [[8, 3]]
    assert find_run(f"{tmp_path}#one").facts["gradient_bytes"] == 8
    assert find_run(str(tmp_path / "rank-00000.0.0.steps.csv")).run_id == "two"


def test_a_part_without_gradients_is_passed_over(tmp_path: Path) -> None:
    write_log(tmp_path, 0, late={"gradient_bytes": 12})
    write_log(tmp_path, 0, 1, began=2, late={})
    assert find_run(str(tmp_path)).facts["gradient_bytes"] == 12


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none", "there is no folder"),
        ("empty", "there are no step logs in"),
        ("logs#three", '"three"; there is one'),
    ],
)
def test_missing_logs_are_errors(tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    write_log(tmp_path / "logs", 0)
    with pytest.raises(NotFoundError, match=message):
        find_run(str(tmp_path / place))


def test_gradients_are_those_of_the_log_or_equal_parts_of_all() -> None:
    assert gradients_of({"gradient_sizes": [[8, 1], [4, 2]]}) == ("sizes", [[4, 2], [8, 1]])
    totals = gradients_of({"gradient_bytes": 11, "gradient_tensors": 3})
    assert totals == ("totals", [[3, 1], [4, 2]])
    assert totals.bytes == 11
    assert gradients_of({"gradient_bytes": 11, "gradient_sizes": [[1]]}) == ("totals", [[11, 1]])
    for unknown in ({}, {"gradient_bytes": None}, {"gradient_bytes": 0}, {"gradient_bytes": True}):
        assert gradients_of(unknown) is None


def test_compressed_gradients_have_half_of_their_bytes() -> None:
    facts = {"gradient_sizes": [[7, 1], [8, 2]], "compression": "fp16"}
    assert gradients_of(facts) == ("sizes", [[4, 3]])
    facts = {"gradient_bytes": 16, "gradient_tensors": 2, "compression": "bf16_compress_hook"}
    assert gradients_of(facts) == ("totals", [[4, 2]])


@pytest.mark.parametrize(
    "recorded", [4000 * 64 * 4, 32 * (64 * 4 + 8), 32 * (64 * 4 + 8) + 2 * 4, 32 * (64 * 4 + 4) + 8]
)
def test_gathered_gradients_are_left_out(recorded: int) -> None:
    embedding = {"name": "embedding", "shape": [4000, 64], "itemsize": 4, "rows": 32}
    sparse = {"count": 3, "largest": [embedding, {"shape": None}, {}]}
    facts = {"gradient_sizes": [[8, 2], [recorded, 2]], "sparse_gradients": sparse}
    assert gradients_of(facts) == ("sizes", [[8, 2], [recorded, 1]])
    assert gradients_of({**facts, "gradient_sizes": [[recorded, 1]]}) is None


def test_large_and_small_gradients_are_mixed() -> None:
    assert Gradients("sizes", [[4, 4], [100, 2]]).mixed() == [4, 100, 4, 4, 100, 4]


def test_buckets_end_with_the_gradient_that_reaches_their_size() -> None:
    mib = 1 << 20
    assert buckets([mib // 2] * 5, 25 * mib) == [mib, 3 * mib // 2]
    # A size that the user has set holds for the first one, too.
    assert buckets([mib // 2] * 5, 2 * mib) == [2 * mib, mib // 2]
    assert buckets([100 * mib, 1], None) == [100 * mib, 1]
    assert buckets([mib] * 27, None) == [mib, 25 * mib, mib]
    assert buckets([], None) == []


@pytest.mark.parametrize("kinds", [1, 3, 200, 201, 1000, 5000])
def test_sizes_are_bounded_and_their_totals_exact(kinds: int) -> None:
    sizes = [4 * (number**2 + 1) for number in range(kinds)] + [4] * 7 + [400] * 3
    counted = size_counts(sizes)
    assert len(counted) <= 200
    assert counted == sorted(counted)
    assert all(count > 0 for _, count in counted)
    assert sum(count for _, count in counted) == len(sizes)
    assert sum(size * count for size, count in counted) == sum(sizes)
    assert [4, 8] in counted
    assert size_counts([]) == []


@pytest.mark.parametrize("hosts", [1, 2, 3, 8, 16, 17, 20])
def test_turns_have_every_pair_once_and_no_host_twice(hosts: int) -> None:
    turns = turns_of(list(range(hosts)))
    pairs = [pair for turn in turns for pair in turn]
    assert sorted(pairs) == list(itertools.combinations(range(hosts), 2))
    for turn in turns:
        assert len({member for pair in turn for member in pair}) == 2 * len(turn)
    assert all(len(turn) == 1 for turn in turns) == (hosts <= 16)


def test_the_first_rank_of_each_host_exchanges() -> None:
    assert first_ranks(["b", "b", "a", "b", "a"]) == {"b": 0, "a": 2}


def test_everything_is_measured_if_there_is_time() -> None:
    ranks = PretendedRanks(["h1", "h1", "h2", "h3"], slow="h3")
    measurements = measured_by(ranks, 40.0, [400, 10], [4 << 20, 3])
    assert measurements.left_out == []
    assert [allreduce.bytes for allreduce in measurements.sweep] == [
        4096,
        65536,
        1 << 20,
        8 << 20,
        64 << 20,
    ]
    assert [burst.messages for burst in measurements.tiny] == [1, 8]
    assert measurements.tiny[1].us[0] - measurements.tiny[0].us[0] == pytest.approx(
        7 * LATENCY, abs=1
    )
    for times in (
        measurements.as_run_us,
        measurements.together_us,
        *(allreduce.us for allreduce in measurements.sweep),
    ):
        assert 5 <= len(times) <= 50
    rates = {pair.hosts: rate_of(pair._asdict()) for pair in measurements.pairs}
    assert rates == {
        ("h1", "h2"): pytest.approx(8 * RATE, rel=0.01),
        ("h1", "h3"): pytest.approx(0.8 * RATE, rel=0.01),
        ("h2", "h3"): pytest.approx(0.8 * RATE, rel=0.01),
    }
    assert all(
        20_000 < pair.us[0] < 50_000 for pair in measurements.pairs if "h3" not in pair.hosts
    )
    assert ranks.now_ns < 40e9


def test_a_rate_is_not_that_of_exchanges_that_waited_for_a_core() -> None:
    assert mbit_s(1_000_000, 90_000.0, [9_000.0, 10_000.0, 80_000.0, 95_000.0]) == pytest.approx(
        8e6 / 81_000
    )


def test_measurements_beyond_the_time_are_left_out() -> None:
    ranks = PretendedRanks([f"h{number}" for number in range(12)], rate=1.0)
    measurements = measured_by(ranks, 12.0, [20 << 20, 1])
    assert ranks.now_ns < 20e9
    assert measurements.as_run_us == measurements.together_us == []
    left_out = "; ".join(measurements.left_out)
    for what in ("the run's gradients:", "67108864 bytes", "of 66 pairs of hosts"):
        assert what in left_out
    assert measurements.tiny
    assert measurements.pairs


def test_pairs_of_many_hosts_exchange_at_the_same_time() -> None:
    ranks = PretendedRanks([f"h{number}" for number in range(20)])
    assert len(measured_by(ranks, 40.0).pairs) == 190


def test_one_host_has_no_pairs() -> None:
    assert measured_by(PretendedRanks(["h1", "h1"]), 5.0).pairs == []


@pytest.mark.parametrize(
    ("env", "has_horovod", "library"),
    [
        ({"HOROVOD_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"}, True, "horovod"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, True, "horovod"),
        ({"PMI_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"}, False, "torch"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, True, "torch"),
        ({"RANK": "0"}, True, None),
        ({}, True, None),
    ],
)
def test_the_launcher_shows_the_library(
    env: dict[str, str], has_horovod: bool, library: str | None
) -> None:
    assert library_of(env, has_horovod) == library


@pytest.mark.parametrize("asked", [None, "torch"])
def test_one_process_is_no_network(asked: str | None) -> None:
    with pytest.raises(UsageError, match="start it under the launcher of the training"):
        join({"RANK": "0", "WORLD_SIZE": "1"}, asked)


def test_torch_without_its_launcher_is_refused() -> None:
    with pytest.raises(UsageError, match="needs RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"):
        join({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, "torch")


def test_horovod_without_a_framework_is_refused() -> None:
    def refuse(name: str) -> Any:
        raise ImportError(f"no {name}\nfor some reason")

    with pytest.raises(UsageError, match=r"torch: no torch; tensorflow: no tensorflow; mxnet: no"):
        join_with_horovod(import_module=refuse)


def test_a_check_without_logs_writes_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = check(PretendedRanks(["h1", "h2"]), None, None, 0.2, {"HOROVOD_CYCLE_TIME": "3"})
    assert outcome is not None
    assert outcome.path.parent == tmp_path
    content = json.loads(outcome.path.read_text())
    assert (content["run_id"], content["gradients"]) == (None, None)
    assert content["settings"] == {"HOROVOD_CYCLE_TIME": "3"}
    assert len(lines_of(content)) <= 11
    assert list(tmp_path.iterdir()) == [outcome.path]


def test_a_check_finds_the_newest_run_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    newest, *others = (tmp_path / name for name in ("runs/two", "runs/one", ".old/run", "a/b/c"))
    for folder in others:
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_log(folder, 0, run_id=folder.name, began=1 if folder.name == "one" else 9)
    write_log(newest, 0, run_id="newest", began=5, late={"gradient_sizes": [[4000, 2]]})
    outcome = check(PretendedRanks(["h1"] * 2), None, None, 1.0, {})
    assert outcome is not None
    assert outcome.run == f"newest in {newest}"
    assert (outcome.content["run_id"], outcome.path.parent) == ("newest", newest)
    assert outcome.content["gradients"]["sizes"] == [[4000, 2]]
    alone = check(PretendedRanks(["h1"] * 2), None, str(tmp_path), 1.0, {})
    assert alone is not None
    assert (alone.run, alone.content["run_id"], alone.path.parent) == (None, None, tmp_path)


def test_a_check_of_a_run_measures_its_gradients(tmp_path: Path) -> None:
    write_log(tmp_path, 0, size=3, late={"gradient_sizes": [[4000, 2]]})
    outcome = check(PretendedRanks(["h2", "h3"]), str(tmp_path), None, 1.0, {})
    assert outcome is not None
    assert outcome.path.parent == tmp_path
    gradients = outcome.content["gradients"]
    assert (gradients["from"], gradients["sizes"]) == ("sizes", [[4000, 2]])
    assert len(outcome.warnings) == 2
    assert "2 ranks, and the run had 3" in outcome.warnings[0]
    assert "it also ran on h1" in outcome.warnings[1]
    run, hosts = find_run(str(tmp_path)), ["h1", "h2", "h3"]
    assert differences(run, PretendedRanks(hosts), hosts) == []
    with_tensorflow = run._replace(facts={**run.facts, "framework": "tensorflow"})
    (warning,) = differences(with_tensorflow, PretendedRanks(hosts), hosts)
    assert "pass --framework tensorflow" in warning
    lines = lines_of(outcome.content)
    assert "7.812 KiB in 2 tensors" in lines[1]
    assert "negotiation" in lines[2]


def test_nothing_is_negotiated_without_horovod(tmp_path: Path) -> None:
    write_log(tmp_path, 0, size=2, late={"gradient_sizes": [[4000, 2]]})
    ranks = PretendedRanks(["h1", "h2"])
    ranks.reduced_by = "torch.distributed"
    outcome = check(ranks, str(tmp_path), None, 1.0, {})
    assert outcome is not None
    (parts,) = [line for line in lines_of(outcome.content) if "of which" in line]
    assert "latency" in parts
    assert "negotiation" not in parts


def test_the_other_ranks_do_not_wait_for_a_first_one_that_fails(tmp_path: Path) -> None:
    ranks = PretendedRanks(["h1", "h2"])
    with pytest.raises(NotFoundError):
        check(ranks, str(tmp_path / "none"), None, 1.0, {})
    ranks.rank = 1
    with pytest.raises(RefusedError):
        check(ranks, str(tmp_path / "none"), None, 1.0, {})


def test_a_result_never_overwrites_another(tmp_path: Path) -> None:
    content = {"began_wall_ns": 1_700_000_000_000_000_000}
    paths = [save({**content, "number": number}, tmp_path) for number in range(3)]
    assert [path.name for path in paths] == [
        f"20231114T221320Z.{number}.netcheck.json" for number in range(3)
    ]
    assert [json.loads(path.read_text())["number"] for path in paths] == [0, 1, 2]
    assert sorted(tmp_path.iterdir()) == paths


def test_a_folder_that_cannot_be_written_to_is_reported_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ranks = PretendedRanks(["h1", "h2"])
    with pytest.raises(UnwritableError, match="pass --out FOLDER"):
        check(ranks, None, str(tmp_path / "file" / "logs"), 1.0, {})
    assert ranks.now_ns == 0


def test_the_slowest_pairs_are_shown_first() -> None:
    pairs = [
        MeasuredPair(("h1", f"h{number}"), 1_000_000, [8e3 / number + 10], [10.0])
        for number in range(2, 7)
    ]
    measured = Measured([], [], [], [], pairs, [])
    content = document(PretendedRanks(["h1"] * 6), ["h1"] * 6, None, None, measured, 0, 1.0, {})
    assert lines_of(content)[-1] == (
        "slowest pairs of hosts: h1 and h2 2.0 Gbit/s, h1 and h3 3.0 Gbit/s, h1 and h4 4.0 Gbit/s"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("version", ["3.8", "3.11"])
def test_the_command_needs_the_standard_library_only(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no python{version} here to run netcheck with")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from stallscope.cli.main import main; "
        "sys.exit(main(['netcheck']))"
    )
    command = [python, "-I", "-S", "-c", program, str(ROOT / "src")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("stallscope: netcheck runs as one process")
    assert done.stderr.count("\n") == 1
