"""The number of ranks follows from the text of logs, or from the ranks with lines or files."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stallscope.analysis import analyse
from stallscope.parsers import read
from stallscope.parsers.formats.line_pattern import LinePatternParser
from stallscope.parsers.formats.printed_steps import rank_logs
from stallscope.parsers.rank_names import StatedRanks, hosts_of_ranks, stated_ranks
from stallscope.parsers.runs import epoch_runs
from stallscope.parsers.runs.reading import Reading
from stallscope.run import Run
from stallscope.text.job_words import number_of_ranks, ranks_and_hosts

KERAS = "".join(
    f"Epoch {epoch}/2\n78/78 - {16 + epoch}s - 218ms/step - loss: 1.9\n" for epoch in (1, 2)
)


@pytest.mark.parametrize(
    ("text", "rank", "size"),
    [
        ("I am rank 4 of 8\n", 4, 8),
        ("Hello from rank: 0 out of 16.\n", 0, 16),
        ("[Rank 3/8] loss 1.2\n[Rank 3/8] loss 1.1\n", 3, 8),
        ("rank 0 of 2\nrank 1 of 2\n", None, 2),
        ("Initializing horovod with communicator (size = 8)\n", None, 8),
        ("{'world_size': 8, 'lr': 0.1}\n", None, 8),
        ("world size: 4\nworld_size=4\n", None, 4),
        ("hvd.size() = 32\n", None, 32),
        ("Num devices: 8\n", None, 8),
        # Two jobs in one file say nothing of either.
        ("world_size: 8\nworld_size: 4\n", None, None),
        ("rank 8 of 8\n", None, None),
        ("Rank 3/8.5 of the list; ranked 1 of 10\n", None, None),
        ("distributed init (rank 3)\n", 3, None),
        ("".join(f"distributed init (rank {rank}): tcp://h:1\n" for rank in range(4)), None, 4),
        ("using world size: 64, data-parallel-size: 8, tensor-model-parallel size: 8\n", None, 64),
        ("  world_size ............................... 64\n", None, 64),
        ("WORLD_SIZE=16\nLOCAL_WORLD_SIZE=8\nRANK=0\n", None, 16),
        ("data_parallel_world_size: 4\ntensor_parallel_world_size: 2\n", None, None),
        ("initializing ddp: GLOBAL_RANK: 3, MEMBER: 4/8\n", 3, 8),
        ("GLOBAL_RANK: 0, MEMBER: 1/2\nGLOBAL_RANK: 1, MEMBER: 2/2\n", None, 2),
        ("All distributed processes registered. Starting with 8 processes\n", None, 8),
        ("with multiple processes. Process 0, total 8, device cuda:0.\n", 0, 8),
        ("Device: cuda:1.Process (global: 9, local 1), total 16.\n", 9, 16),
        ("Rank of current process: 3. World size: 8\n", 3, 8),
        ("Num processes: 4\nProcess index: 3\nLocal process index: 1\n", 3, 4),
        ("JAX process: 1 / 4\n", 1, 4),
        ("training on 8 devices (GPUs/TPUs)\n", None, 8),
        ("Building 2-D device mesh with ['dp', 'tp'], [4, 2]\n", None, 8),
        (
            "device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1\n",
            None,
            16,
        ),
        ("Initialized 8 processes\n", None, 8),
        ("Initialized 8 processes to read files\n", None, None),
        ("nnodes=2, num_local_procs=8, node_rank=1\n", None, 16),
        ("+ torchrun --nnodes=2 --nproc_per_node 8 train.py\n", None, 16),
        ("+ torchrun --nnodes=1:4 --nproc_per_node 8 train.py\n", None, None),
        ("+ torchrun --standalone --nproc-per-node=4 train.py\n", None, 4),
        ("+ mpirun -np 16 -H a:8,b:8 python train.py\n", None, 16),
        ("num_gpus: 8\nnum_nodes: 4\n", None, None),
        ("num_gpus: 8\nnum_nodes: 1\n", None, 8),
        ("NCCL INFO comm 0x5 rank 1 nranks 8 x\nNCCL INFO comm 0x6 rank 1 nranks 2 x\n", None, 8),
        # Paddle: a start on two ranks, then one on four, two of which share a model.
        (
            "".join(
                f"init nccl context nranks: {size} local rank: 0 gpu id: 0 ring id: {ring}\n"
                for size, ring in ((2, 0), (2, 10), (4, 0), (2, 3))
            ),
            None,
            4,
        ),
        ("[INFO|DP=0|PP=0|TP=0|h] a\n[INFO|DP=1|PP=0|TP=0|h] a\n", None, 2),
        ("[INFO|DP=0|PP=0|TP=0] a\n[INFO|DP=1|PP=0|TP=1] a\n", None, None),
        (
            "  Instantaneous batch size per device = 8\n  Gradient Accumulation steps = 2\n"
            "  Total train batch size (w. parallel, distributed & accumulation) = 1,024\n",
            None,
            64,
        ),
        ("epoch 3 of 8, step 3/8\n", None, None),
        ("", None, None),
    ],
)
def test_ranks_in_words(text: str, rank: int | None, size: int | None) -> None:
    said = stated_ranks(text.encode())
    assert (said.rank, said.size) == (rank, size)
    assert said.varies == ("world_size: 4" in text and "world_size: 8" in text)


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        ("using world size: 64, data-parallel size: 8, tensor-model-parallel size: 8\n", 8),
        ("world_size .......... 64\ndata_parallel_size .......... 16\n", 16),
        ("world size: 64\ndata_parallel_size: 48\n", None),
        ("data_parallel_size: 8\n", None),
    ],
)
def test_ranks_that_share_a_model_share_a_batch(text: str, replicas: int | None) -> None:
    assert stated_ranks(text.encode()).replicas == replicas


def test_messages_name_the_hosts_of_ranks() -> None:
    ray = "- (node_id=5d51, ip=10.0.0.2, pid=72) world_rank=3, local_rank=0\n"
    sagemaker = "[1,mpirank:1,algo-2]<stdout>:a\n"
    fairseq = "initialized host gpu-1 as rank 2\n"
    nccl = "gpu-7:1:2 [0] NCCL INFO comm 0x5 rank 4 nranks 8 cudaDev 0\n"
    part = "gpu-8:1:2 [0] NCCL INFO comm 0x6 rank 0 nranks 2 cudaDev 0\n"
    text = (ray + sagemaker + fairseq + nccl + part).encode()
    assert hosts_of_ranks(text) == {3: "10.0.0.2", 1: "algo-2", 2: "gpu-1", 4: "gpu-7"}
    # Elastic jobs start a rank elsewhere.
    assert hosts_of_ranks((ray + ray.replace("0.2", "0.3")).encode()) == {}


def step_line(step: int, seconds: float = 0.0, rank: int = 0) -> str:
    at = datetime(2026, 11, 21, 2, 28) + timedelta(seconds=step + seconds)
    return (
        f"{at:%Y-%m-%d %H:%M:%S.%f} rank {rank} step {step}/99 loss 2.{step} time 1.0{step % 7}s\n"
    )


def lines_of(text: str, tmp_path: Path) -> Run:
    (tmp_path / "train.log").write_text(text)
    (run,) = read(str(tmp_path / "train.log"))
    return run


def test_a_step_has_the_samples_of_all_replicas(tmp_path: Path) -> None:
    settings = "using world size: 64, data-parallel size: 8, x\nglobal_batch_size: 256\n"
    run = lines_of(settings + "".join(map(step_line, range(50))).replace("rank 0 ", ""), tmp_path)
    assert (run.size, run.fact("batch_size"), run.fact("samples_per_step")) == (64, 32, 256)
    rate = analyse(run).samples_per_second
    assert rate is not None
    assert 240 < rate < 260


def test_srun_labels_nodes_that_have_several_ranks_each(tmp_path: Path) -> None:
    start = "".join(f"{node}: loading\n" for node in (0, 1, 2, 3)) + "0: world size: 32\n"
    steps = "".join(
        f"{node}: " + step_line(step).replace("rank 0 ", "")
        for step in range(50)
        for node in (1, 3)
        for _ in range(8)
    )
    run = lines_of(start + steps, tmp_path)
    assert (run.size, run.ranks, int(run.intervals["steps"].to_numpy().sum())) == (32, [0], 50)


def test_ranks_without_labels_print_each_step_once(tmp_path: Path) -> None:
    ahead = {0: 0.0, 1: 0.7, 2: 1.4, 3: 2.1}
    lines = [
        (step + seconds, step_line(step, seconds).replace("rank 0 ", ""))
        for step in range(50)
        for seconds in ahead.values()
    ]
    run = lines_of("world_size: 4\n" + "".join(line for _, line in sorted(lines)), tmp_path)
    assert (run.size, run.ranks, int(run.intervals["steps"].to_numpy().sum())) == (4, [0], 50)
    assert any("several ranks print into this file" in str(note) for note in run.problems)


@pytest.mark.parametrize(
    ("label", "ranks"),
    [
        ("[Rank {}] ", [0, 1, 2]),
        ("[1,mpirank:{},algo-1]<stdout>:", [0, 1, 2]),
    ],
)
def test_ranks_in_labels_and_words(label: str, ranks: list[int], tmp_path: Path) -> None:
    lines = [
        label.format(rank) + step_line(step).replace("rank 0 ", "")
        for step in range(50)
        for rank in ranks
    ]
    run = lines_of("".join(lines), tmp_path)
    assert (run.known_size, run.ranks) == (3, ranks)


def test_devices_of_xla_are_ranks(tmp_path: Path) -> None:
    lines = [
        f"| Training Device=xla:0/{rank} Epoch=1 Step={step} Loss=2.{step} Rate=250.1 "
        f"Time=10:{step // 60:02}:{step % 60:02}\n"
        for step in range(1, 90)
        for rank in range(3)
    ]
    run = lines_of("".join(lines), tmp_path)
    assert (run.known_size, run.ranks, sum(run.intervals["steps"].to_pylist())) == (3, [0], 88)


def test_a_job_that_begins_anew_with_more_ranks_has_no_one_number() -> None:
    begins = "Initializing horovod with communicator (size = {})\n"
    long = begins.format(1) + "x" * (2 << 20) + "\n" + begins.format(2)
    assert stated_ranks(long.encode()) == StatedRanks(None, None, varies=True)


def test_what_keras_printed_knows_its_ranks_if_the_program_says_them(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(f"I am rank 4 of 8\n{KERAS}")
    (run,) = read(str(tmp_path))
    assert (run.size, run.ranks) == (8, [4])
    assert run.fact("size_from") == "what the log says"


def test_files_that_say_which_ranks_they_are_form_a_run(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"job-17.{rank + 1}.log").write_text(f"I am rank {rank} of 8\n{KERAS}")
    (run,) = read(str(tmp_path))
    assert (run.size, run.ranks) == (8, [0, 1, 2, 3])


def test_files_of_ranks_are_as_many_as_trained(tmp_path: Path) -> None:
    folder = tmp_path / "lanes"
    folder.mkdir()
    for rank in range(3):
        (folder / f"rank.{rank}.log").write_text(KERAS)
    (run,) = read(str(folder))
    assert (run.fact("size"), run.fact("size_from"), run.name) == (3, "files of the ranks", "lanes")


def test_without_the_file_of_a_rank_their_number_is_unknown(tmp_path: Path) -> None:
    for rank in (0, 2):
        (tmp_path / f"rank.{rank}.log").write_text(KERAS)
    (run,) = read(str(tmp_path))
    assert (run.ranks, run.fact("size")) == ([0, 2], None)


@pytest.mark.parametrize(
    "label", ["{:2}: ", "[1,{}]<stdout>:", "[{}]<stderr>:", "[{}] ", "[rank{}]: "]
)
def test_ranks_that_print_no_steps_are_counted(tmp_path: Path, label: str) -> None:
    loading = "".join(f"{label.format(rank)}Loading\n" for rank in (3, 1, 2, 0) for _ in range(3))
    of_rank_0 = "".join(
        f"{label.format(0)}Epoch: [0][{step}/99]\tTime 0.{step + 200} (0.{step + 200})\n"
        for step in range(99)
    )
    (tmp_path / "out.txt").write_text(loading + of_rank_0)
    (run,) = read(str(tmp_path))
    assert (run.fact("size"), run.fact("size_from")) == (4, "ranks of the lines")
    # Another rank may have printed nothing at all.
    assert number_of_ranks(run) == ranks_and_hosts(analyse(run)) == "at least 4 ranks"
    # Not if some rank has no line: the numbers may be of something else.
    (tmp_path / "out.txt").write_text(loading.replace(label.format(2), label.format(9)) + of_rank_0)
    (run,) = read(str(tmp_path))
    assert run.fact("size") is None


def test_words_are_trusted_more_than_files_and_files_more_than_labels(tmp_path: Path) -> None:
    for rank in range(2):
        words, labelled = tmp_path / "words", tmp_path / "labelled"
        for folder, before in ((words, "world_size: 4\n"), (labelled, "[1,5]<stdout>:Loading\n")):
            folder.mkdir(exist_ok=True)
            (folder / f"rank.{rank}.log").write_text(f"{before}{KERAS}")
    sizes = {run.name: run.fact("size") for run in read(str(tmp_path))}
    assert sizes == {"words": 4, "labelled": 2}


def test_files_of_several_jobs_are_runs_of_their_own(tmp_path: Path) -> None:
    for job in range(2):
        for rank in range(2):
            (tmp_path / f"job-{job}.{rank}.log").write_text(f"I am rank {rank} of 2\n{KERAS}")
    runs = read(str(tmp_path))
    assert [(run.size, run.ranks) for run in runs] == [(2, [0, 1])] * 2
    (tmp_path / "job-1.1.log").write_text(f"I am rank 0 of 2\n{KERAS}")
    assert len(read(str(tmp_path))) == 3


def test_words_are_trusted_more_than_labels_and_names(tmp_path: Path) -> None:
    labelled = "".join(
        f"[{rank}]<stdout>:{line}\n" for line in KERAS.splitlines() for rank in (0, 1)
    )
    (tmp_path / "np-4.log").write_text(labelled)
    (run,) = read(str(tmp_path))
    assert run.size == 2
    (tmp_path / "np-4.log").write_text(f"world_size: 16\n{labelled}")
    (run,) = read(str(tmp_path))
    assert (run.size, run.ranks) == (16, [0, 1])


def test_a_labelled_log_of_steps_is_searched_for_words_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[bytes] = []

    def counting(data: bytes) -> StatedRanks:
        searched.append(data)
        return stated_ranks(data)

    for module in (epoch_runs, rank_logs):
        monkeypatch.setattr(module, "stated_ranks", counting)
    lines = [f"[1,{n % 2}]<stdout>:2026-11-21 02:28:{n:02} step {n // 2}\n" for n in range(40)]
    reading = Reading(LinePatternParser("{time} step {step}"))
    reading.add_file("train.log", "train.log", "".join(lines).encode())
    assert len(searched) == 1
