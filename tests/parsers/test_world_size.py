"""The number of ranks follows from the text of logs, or from the ranks with lines or files."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.parsers import read
from stallscope.parsers.formats.line_pattern import LinePatternParser
from stallscope.parsers.formats.printed_steps import printed_step_parser
from stallscope.parsers.rank_names import StatedRanks, stated_ranks
from stallscope.parsers.runs import epoch_runs
from stallscope.parsers.runs.reading import Reading

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
        ("epoch 3 of 8, step 3/8\n", None, None),
        ("", None, None),
    ],
)
def test_ranks_in_words(text: str, rank: int | None, size: int | None) -> None:
    said = stated_ranks(text.encode())
    assert (said.rank, said.size) == (rank, size)
    assert said.varies == ("world_size: 4" in text and "world_size: 8" in text)


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

    for module in (epoch_runs, printed_step_parser):
        monkeypatch.setattr(module, "stated_ranks", counting)
    lines = [f"[1,{n % 2}]<stdout>:2026-11-21 02:28:{n:02} step {n // 2}\n" for n in range(40)]
    reading = Reading(LinePatternParser("{time} step {step}"))
    reading.add_file("train.log", "train.log", "".join(lines).encode())
    assert len(searched) == 1
