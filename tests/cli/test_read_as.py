"""``--read-as`` with a user's own parser: it is imported, and its mistakes are sentences."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from support.commands import inspected

from stallscope.cli.main import main

Captured = pytest.CaptureFixture[str]

OWN = """
from stallscope.parsers import Parsed, Parser
from stallscope.parsers.epochs_only import Epoch, epochs_log


class Own(Parser):
    name = "own"
    title = "lines of our own"
    suffix = ".own"
    has_steps = False

    def recognises(self, file_name, head):
        return True

    def parse(self, path, data):
        took = int(data) * 10**9
        facts = {"known_from": "our own lines", "precision": "epochs, to the second"}
        return epochs_log(path, facts=facts, epochs=[Epoch(0, 0, took)], ended=True, size=len(data))


class Abstract(Parser):
    pass
"""


@pytest.fixture
def our_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a user's module and its input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "our_parsers.py").write_text(OWN)
    (tmp_path / "broken_parsers.py").write_text("1 / 0\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.own").write_text("17")
    return logs


def test_a_users_own_parser_is_imported(our_logs: Path, capsys: Captured) -> None:
    document = inspected(capsys, str(our_logs), "--read-as", "our_parsers:Own")
    assert (document["files"][0]["format"], document["files"][0]["sure"]) == ("own", "told")
    assert document["runs"][0]["epochs"] == 1
    assert main(["report", str(our_logs), "--read-as", "our_parsers:Own"]) == 0
    assert "our own lines" in capsys.readouterr().out


def test_the_current_folder_replaces_no_module_of_python(our_logs: Path, capsys: Captured) -> None:
    # The user's parser imports its neighbour when it reads the first file.
    text = OWN.replace("took = int(data)", "import seconds_of_ours as ours; took = ours.of(data)")
    Path("late_parsers.py").write_text(text)
    Path("seconds_of_ours.py").write_text("def of(data):\n    return int(data)\n")
    Path("this.py").write_text("raise ValueError('a file of the user')\n")
    document = inspected(capsys, str(our_logs), "--read-as", "late_parsers:Own")
    assert document["runs"][0]["epochs"] == 1
    spec = importlib.util.find_spec("this")
    assert spec is not None
    assert spec.origin != str(Path("this.py").resolve())


def test_an_error_in_a_users_parser_is_reported_for_the_file(
    our_logs: Path, capsys: Captured
) -> None:
    (our_logs / "b.own").write_text("seventeen")
    document = inspected(capsys, str(our_logs), "--read-as", "our_parsers:Own")
    files = {file["path"]: file for file in document["files"]}
    assert files["b.own"]["notes"][0].startswith("the parser own failed: ValueError")
    assert document["runs"][0]["epochs"] == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nonsense", "no parser 'nonsense': there are step-log"),
        ("no_such_module:Own", "'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("broken_parsers:Own", "'broken_parsers' cannot be imported: ZeroDivisionError"),
        ("our_parsers:Other", "our_parsers has no 'Other'"),
        ("our_parsers:", "our_parsers has no ''"),
        ("json:loads", "loads is not a class derived from stallscope.parsers.Parser"),
        ("our_parsers:Abstract", "Abstract() failed: TypeError"),
        (":Own", "cannot be imported"),
        ("pattern:{when} x", "{when} is not a field"),
    ],
)
def test_a_bad_name_of_a_parser_is_one_sentence(
    our_logs: Path, capsys: Captured, name: str, says: str
) -> None:
    assert main(["inspect", str(our_logs), "--read-as", name]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
