"""``stallscope`` itself: what it says of its commands, and how shells complete them."""

from __future__ import annotations

import argparse
import importlib
import shlex
import subprocess

import pytest

from stallscope.cli.completion import SHELLS
from stallscope.cli.main import COMMANDS, EXAMPLES, main

# Completes the words after the script, the last of which is unfinished.
_COMPLETE = """
source /dev/stdin <<< "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
$(complete -p stallscope | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_without_arguments_it_says_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "stallscope report FOLDER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["reprot", "logs"], 'no such command: "reprot"; did you mean "report"?'),
        (["xyzzy"], 'no such command: "xyzzy"; stallscope --help lists the commands'),
    ],
)
def test_a_misspelt_command_gets_a_hint(
    capsys: pytest.CaptureFixture[str], words: list[str], hint: str
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"stallscope: {hint}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples_that_can_be_typed(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"stallscope.cli.{command}").add_arguments(parser)
    for line, _ in EXAMPLES[command]:
        words = shlex.split(line.partition(" > ")[0].partition("stallscope ")[2])
        assert words[0] == command
        parser.parse_intermixed_args(words[1:])
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"  {EXAMPLES[command][0][0]}\n" in capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["stallscope", "com"], {"compare", "completion"}),
        (["stallscope", "runs", "--rev"], {"--reverse"}),
        (["stallscope", "netcheck", "--with", "ho"], {"horovod"}),
    ],
)
def test_bash_completes(
    capsys: pytest.CaptureFixture[str], words: list[str], completed: set[str]
) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    done = subprocess.run(
        ["bash", "-c", _COMPLETE, "bash", script, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == completed
