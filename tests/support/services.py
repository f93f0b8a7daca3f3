"""Real servers for tests: started when the first test asks, ended after the last one, also a failed one.

What runs them is in ``tools/services``; ``make services`` starts the same by hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_TOOLS = Path(__file__).parents[2] / "tools" / "services"
_NUMBERS = itertools.count()


def tool(name: str) -> ModuleType:
    """A module of ``tools/services``, which is no part of the package."""
    if "stallscope_services" not in sys.modules:
        _load("stallscope_services", _TOOLS / "__init__.py", [str(_TOOLS)])
    return importlib.import_module(f"stallscope_services.{name}")


def _load(name: str, path: Path, inside: list[str]) -> None:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def _need(there: bool, reason: str) -> None:
    """Skip tests that a machine cannot run; in CI they fail."""
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def services_side() -> None:
    """The environment with MLflow's server and the S3 server."""
    ready = tool("server").ENVIRONMENT / ".ready"
    _need(ready.exists(), "there is no .venv-services with servers to talk to: make services-env")


@pytest.fixture(scope="session")
def mlflow_server(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The tracking URI of an MLflow server for all tests: SQLite, artifacts through the server."""
    with tool("mlflow").mlflow_server(tmp_path_factory.mktemp("servers") / "mlflow") as uri:
        yield uri


@pytest.fixture(scope="session")
def spark_cluster(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A standalone Spark with one worker: ``master`` and the folder ``work`` of executors' logs."""
    spark = tool("spark")
    _need(
        spark.READY.exists(),
        "there is no Spark in .venv-services: tools/services-env.sh .venv-services spark",
    )
    with spark.spark_cluster(tmp_path_factory.mktemp("servers")) as cluster:
        yield cluster


@dataclass(frozen=True)
class S3:
    """A bucket that no other test uses, and the settings by which clients find it."""

    endpoint: str
    bucket: str
    key_id: str
    secret: str

    def url(self, path: str = "") -> str:
        return f"s3://{self.bucket}/{path}"

    def put(self, folder: Path, path: str = "") -> None:
        """Copy a folder's files to below a path of the bucket."""
        import s3fs

        files = s3fs.S3FileSystem(use_listings_cache=False)
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            files.put_file(str(file), f"{self.bucket}/{path}/{file.relative_to(folder)}")


@pytest.fixture(scope="session")
def s3_service(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One S3 server for all tests."""
    with tool("s3").s3_server(tmp_path_factory.mktemp("servers") / "s3") as s3:
        yield s3


@pytest.fixture
def s3_server(s3_service: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An empty bucket of the S3 server, which this process and those that it starts then use."""
    import s3fs

    use_s3(s3_service, monkeypatch)
    bucket = f"{s3_service.bucket}-{next(_NUMBERS)}"
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(bucket)
    yield S3(s3_service.endpoint, bucket, s3_service.key_id, s3_service.secret)
    s3fs.S3FileSystem.clear_instance_cache()


def use_s3(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a server the one that clients of S3 find, with nothing of the developer's own."""
    import s3fs

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    # A machine without keys would otherwise be asked for those of the cloud it may run in.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in service.settings().items():
        monkeypatch.setenv(name, value)
    # Kept per process, with the keys of the test that was first.
    s3fs.S3FileSystem.clear_instance_cache()


@dataclass(frozen=True)
class Sshd:
    """An sshd, and the home folder of a user who knows it by the names ``alpha`` and ``beta``."""

    port: int
    user: str
    known_hosts: Path
    key: Path
    home: Path
    service: Any

    def configure(self, *settings: str) -> None:
        """Write the user's ssh configuration anew: how to reach the hosts, and more settings."""
        config = self.service.config(("alpha", "beta"), *settings)
        (self.home / ".ssh" / "config").write_text(config)


@pytest.fixture(scope="session")
def sshd_side() -> None:
    """The distribution's sshd."""
    there = tool("ssh").find_sshd() is not None
    _need(there, "there is no sshd to connect to: make services-env")


@pytest.fixture(scope="session")
def ssh_service(sshd_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One sshd for all tests."""
    with tool("ssh").ssh_server(tmp_path_factory.mktemp("servers") / "ssh") as service:
        yield service


@pytest.fixture
def sshd(ssh_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """An sshd that a user's own ssh configuration leads to; the home folder is the test's."""
    import sshfs

    yield use_sshd(ssh_service, tmp_path / "home", monkeypatch)
    sshfs.SSHFileSystem.clear_instance_cache()


def use_sshd(service: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> Sshd:
    """Make ``home`` the home folder of a user who knows the server and whom it knows."""
    import sshfs

    files = home / ".ssh"
    files.mkdir(parents=True)
    shutil.copy(service.known_hosts, files / "known_hosts")
    known = Sshd(service.port, service.user, files / "known_hosts", service.key, home, service)
    known.configure(f"IdentityFile {service.key}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    # Connections are kept per process.
    sshfs.SSHFileSystem.clear_instance_cache()
    return known
