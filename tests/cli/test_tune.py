"""``stallscope tune`` as a user types it, with bytes that Horovod 0.28.1 wrote."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.schemas import errors_in
from support.step_logs import Job, write_job
from support.web import web

from stallscope.cli.main import main

REAL = Path(__file__).parent / "tune"
SETTINGS = {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": "/logs/autotune.csv"}
#: A job that settled after 45 rounds of 51 steps at most, and trained for some hundred more.
TUNED = Job(steps=2800, allreduce_ms=2.0, run_id="tuned", facts={"settings": SETTINGS})
OWN = replace(TUNED, steps=400, allreduce_ms=6.0, run_id="own", facts={"settings": {}})

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make folders with the log and its steps, with the same job's without the tuner, and with
    neither.
    """
    folder = tmp_path_factory.mktemp("tune")
    write_job(folder / "tuned", TUNED)
    shutil.copy(REAL / "autotune.csv", folder / "tuned")
    write_job(folder / "own", OWN)
    shutil.copy(REAL / "timeline.json", folder)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(autouse=True)
def here(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_log_alone_gives_the_setting_with_an_unknown_gain(capsys: Captured) -> None:
    assert main(["tune", str(REAL / "autotune.csv")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    printed = " ".join(out.split())
    assert "cycles of 10.0 ms, fusion up to 8.00 MiB, response cache on" in printed
    assert "insufficient_data" in printed
    assert "HOROVOD_FUSION_THRESHOLD=8388608\nHOROVOD_CYCLE_TIME=10\n" in out
    assert "HOROVOD_CACHE_CAPACITY=1024\n" in out
    assert "8.02 MB/s, the best of 42 settings" in printed
    assert max(map(len, out.splitlines())) <= 80


def test_logs_without_the_tuners_are_called_what_they_are(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "train.log").write_text(
        "".join(f"Epoch {epoch}/3\n78/78 - 16s - 205ms/step - loss: 1.9\n" for epoch in (1, 2, 3))
    )
    for place, known in ((tmp_path / "epochs", "epochs"), (Path("own"), "steps")):
        assert main(["tune", str(place)]) == 2
        assert f"there are logs of {known}, but neither an autotune log" in capsys.readouterr().err


def test_every_launcher_gets_lines_that_can_be_pasted(capsys: Captured) -> None:
    assert main(["tune", "tuned"]) == 0
    out, _ = capsys.readouterr()
    assert "horovodrun -np 2 --fusion-threshold-mb 8 --cycle-time-ms 10" in out
    assert "-x HOROVOD_FUSION_THRESHOLD=8388608 -x HOROVOD_CYCLE_TIME=10 \\\n" in out
    assert "horovod.spark.run(train, num_proc=2, env={\n" in out
    assert '    "HOROVOD_CYCLE_TIME": "10",\n' in out
    # Two ranks of one host.
    assert "HIERARCHICAL" not in out
    assert "Left out, as it does nothing on this job's hosts" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_steps_give_the_gain_of_the_setting(capsys: Captured) -> None:
    assert main(["tune", "tuned", "own", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out)
    assert errors_in("tune", document) == []
    (tuned,) = document["autotune"]
    assert (tuned["verdict"], tuned["settled"], tuned["run"]) == ("fix", True, "tuned")
    (compared,) = tuned["compared"]
    assert compared["run"] == "own"
    assert compared["saved_ms"] == pytest.approx(4.0, abs=0.3)
    assert compared["ci95"][0] > 1
    assert tuned["tried"][0]["steps"] == 47
    assert tuned["tried"][0]["step_ci95_ms"] is not None
    assert main(["tune", "tuned", "own"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("tuned/autotune.csv Fix cycles of 10.0 ms")
    assert "in own, without the autotuner" in printed


def test_a_setting_without_a_gain_is_not_recommended(tmp_path: Path, capsys: Captured) -> None:
    write_job(tmp_path / "faster", replace(OWN, allreduce_ms=1.0))
    assert main(["tune", "tuned", str(tmp_path / "faster")]) == 0
    out, _ = capsys.readouterr()
    assert "Leave the settings as they are" in out
    assert "are slower" in " ".join(out.split())
    assert "HOROVOD_CYCLE_TIME=" not in out


def test_timelines_are_read_as_well(capsys: Captured) -> None:
    assert main(["tune", "timeline.json", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert errors_in("tune", document) == []
    (timeline,) = document["timelines"]
    assert (timeline["name"], timeline["reductions"], timeline["steps"]) == (
        "timeline.json",
        1,
        None,
    )
    assert main(["tune", "timeline.json"]) == 0
    out = capsys.readouterr().out
    assert "Nothing in it asks for other settings" in out
    assert "Steps are unknown: most tensors are negotiated once" in out


@pytest.mark.parametrize(("mib", "flag"), [("0.3", "1"), ("0", "0"), ("25.736", "26")])
def test_horovodruns_flag_is_rounded_and_says_so(
    tmp_path: Path, mib: str, flag: str, capsys: Captured
) -> None:
    log = tmp_path / "old.csv"
    columns = "hierarchical_allreduce,hierarchical_allgather,cycle_time_ms,tensor_fusion_threshold"
    log.write_text(f"{columns},score\n0,0,5,{mib},9\n0,0,5,{mib},9\n")
    assert main(["tune", str(log)]) == 0
    out, _ = capsys.readouterr()
    assert f"--fusion-threshold-mb {flag} " in out
    assert ("the environment's line is exact" in " ".join(out.split())) == (mib != "0")
    # That version has no switch for the cache.
    assert "CACHE" not in out


def test_a_log_named_twice_counts_once(capsys: Captured) -> None:
    words = ["tune", "tuned/autotune.csv", "tuned", "own", "own", "--format", "json"]
    assert main(words) == 0
    (tuned,) = json.loads(capsys.readouterr().out)["autotune"]
    assert tuned["verdict"] == "fix"
    assert len(tuned["compared"]) == 1


def test_files_are_written_once_and_not_overwritten(tmp_path: Path, capsys: Captured) -> None:
    words = ["tune", ".", "--format", "md,json", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "out" / f"tune.{end}") for end in ("md", "json")
    ]
    text = (tmp_path / "out" / "tune.md").read_text()
    assert "```\nHOROVOD_FUSION_THRESHOLD=8388608\n" in text
    assert "| Setting | Cycle, ms |" in text
    assert main(words) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_names_from_outside_are_escaped(tmp_path: Path, capsys: Captured) -> None:
    odd = tmp_path / "a|b <i>\x1b[31m.csv"
    shutil.copy(REAL / "autotune.csv", odd)
    assert main(["tune", str(odd)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["tune", str(odd), "--format", "md", "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "tune.md").read_text()
    assert "\x1b" not in text
    assert "<i>" not in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere"),
        (["empty"], "no logs in an empty folder"),
        (["own"], "neither an autotune log nor a Timeline"),
        (["tuned", "--format", "html"], "no report format 'html': there are md, json"),
        (["tuned", "--out", "out"], "--out needs --format: say which of md, json to write"),
    ],
)
def test_mistakes_are_errors_of_one_sentence(
    words: list[str], sentence: str, capsys: Captured
) -> None:
    assert main(["tune", *words]) == 2
    _, err = capsys.readouterr()
    assert sentence in err
    assert err.startswith("stallscope: ")
    assert len(err.splitlines()) == 1


def test_unreadable_logs_are_reported_and_the_others_used(capsys: Captured) -> None:
    assert main(["tune", "nowhere", str(REAL / "autotune.csv")]) == 2
    out, err = capsys.readouterr()
    assert "HOROVOD_CYCLE_TIME=10" in out
    assert "nowhere" in err


@pytest.mark.extras
@pytest.mark.parametrize("parts", [True, False], ids=["gives parts", "gives wholes"])
def test_logs_of_a_web_server_are_read_where_they_are(
    folders: Path, capsys: Captured, parts: bool
) -> None:
    files = {
        "autotune.csv": (REAL / "autotune.csv").read_bytes(),
        "timeline.json.gz": gzip.compress((REAL / "timeline.json").read_bytes()),
        **{path.name: path.read_bytes() for path in (folders / "own").glob("*.steps.csv")},
    }
    with web(files=files, parts=parts, sized=parts) as served:
        assert main(["tune", f"{served.url}/autotune.csv?key=secret", "--format", "json"]) == 0
        (tuned,) = json.loads(capsys.readouterr().out)["autotune"]
        assert tuned["name"] == f"{served.url}/autotune.csv"
        # The same file under both names counts once; the page's other files are named.
        links = "".join(f'<a href="{name}">{name}</a>' for name in files)
        files["logs/"] = links.replace('href="', 'href="/').encode()
        words = [f"{served.url}/timeline.json.gz", f"{served.url}/autotune.csv", "tuned"]
        assert main(["tune", *words, "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
    assert len(document["timelines"]) == 1
    assert len(document["autotune"]) == 2
    assert document["timelines"][0]["name"] == f"{served.url}/timeline.json.gz"


@pytest.mark.extras
def test_a_folder_of_a_web_server_is_read_as_well(folders: Path, capsys: Captured) -> None:
    files = {
        "logs/autotune.csv": (REAL / "autotune.csv").read_bytes(),
        **{
            f"logs/{path.name}": path.read_bytes()
            for path in (folders / "tuned").glob("*.steps.csv")
        },
    }
    links = "".join(f'<a href="/{name}">{name}</a>' for name in files)
    with web(files={**files, "logs/": links.encode()}) as served:
        assert main(["tune", f"{served.url}/logs/*.csv", "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
    (tuned,) = document["autotune"]
    assert (tuned["name"], tuned["run"]) == (f"{served.url}/logs/autotune.csv", "tuned")


def test_missing_files_of_a_web_server_are_reported(capsys: Captured) -> None:
    with web() as served:
        assert main(["tune", f"{served.url}/autotune.csv"]) == 2
        err = capsys.readouterr().err
    assert err.startswith(f"stallscope: {served.url}/autotune.csv: ")
    assert err.count("\n") == 1
