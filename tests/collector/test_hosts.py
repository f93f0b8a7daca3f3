"""A hostfile of horovodrun gives one place per host, and errors name its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.cli.collect import expand_hosts
from stallscope.errors import NotFoundError, UnreadableError, UsageError


def hostfile(folder: Path, text: str) -> Path:
    path = folder / "hosts"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "alpha slots=2\nbeta-1.local slots=4\n",
        "alpha:2\nbeta-1.local:4",
        "alpha:2,beta-1.local:4\n",
        "# the job's hosts\n\nalpha  slots = 2   # with a GPU\r\n   beta-1.local\t slots=4\r\n\n",
        "\ufeffalpha\nbeta-1.local\nalpha slots=1\n",
    ],
)
def test_every_host_is_one_place_in_the_order_of_the_file(tmp_path: Path, text: str) -> None:
    places = expand_hosts("/logs/run-42", hostfile(tmp_path, text))
    assert places == ["ssh://alpha/logs/run-42", "ssh://beta-1.local/logs/run-42"]


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("/", "ssh://alpha/"),
        ("/scratch/{host}/logs", "ssh://alpha/scratch/alpha/logs"),
        ("ssh://{host}/logs", "ssh://alpha/logs"),
        ("ssh://train@{host}:2222/logs/{host}", "ssh://train@alpha:2222/logs/alpha"),
        ("sftp://{host}.cluster/logs/{run}", "sftp://alpha.cluster/logs/{run}"),
    ],
)
def test_the_hosts_name_is_put_into_the_path(tmp_path: Path, path: str, first: str) -> None:
    assert expand_hosts(path, hostfile(tmp_path, "alpha slots=2\nbeta slots=2\n"))[0] == first


@pytest.mark.parametrize("path", ["logs/run-42", "", "s3://bucket/{host}", "~/logs", "C:\\logs"])
def test_a_place_that_is_on_no_host_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=r"absolute path on every host, or a URL such as ssh://"):
        expand_hosts(path, hostfile(tmp_path, "alpha slots=2\n"))


@pytest.mark.parametrize("path", ["ssh://alpha/logs", "ssh:///logs", "ssh://alpha/{host}/logs"])
def test_a_url_without_a_place_for_the_host_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=r"write \{host\} in place of the host's name"):
        expand_hosts(path, hostfile(tmp_path, "alpha slots=2\n"))


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("beta slots=two", "beta slots=two"),
        ("beta gpus=2", "beta gpus=2"),
        ("beta:", "beta:"),
        ("-oProxyCommand=evil", "-oProxyCommand=evil"),
        ("train@beta", "train@beta"),
        ("beta/../gamma", "beta/../gamma"),
        ("beta:2,,gamma:2", ""),
    ],
)
def test_the_error_names_file_and_line(tmp_path: Path, line: str, entry: str) -> None:
    path = hostfile(tmp_path, f"# hosts\nalpha slots=2\n{line}\n")
    with pytest.raises(UnreadableError) as raised:
        expand_hosts("/logs", path)
    assert str(raised.value) == (
        f"{path}, line 3: {entry!r} is not a valid host; write 'host1 slots=2' or 'host1:2'"
    )


def test_a_hostfile_without_hosts_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="has no hosts; write one per line: host1 slots=2"):
        expand_hosts("/logs", hostfile(tmp_path, "# none yet\n\n"))


def test_a_hostfile_that_is_missing_or_binary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such hostfile"):
        expand_hosts("/logs", tmp_path / "nothing")
    with pytest.raises(UnreadableError, match="cannot be read as a hostfile"):
        expand_hosts("/logs", tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableError, match="cannot be read as a hostfile"):
        expand_hosts("/logs", tmp_path / "binary")
