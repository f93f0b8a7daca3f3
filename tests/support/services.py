"""Real servers for tests: they start with the first test that needs one, and end after the last.

``tools/services`` runs them; ``make services`` starts the same by hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .google import signed_in
from .needing import need
from .stores import AzureStore, Bucket, GcsStore, S3Store, Store

_TOOLS = Path(__file__).parents[2] / "tools" / "services"


def tool(name: str) -> ModuleType:
    """Import a module of ``tools/services``, which is not part of the package."""
    if "stallscope_services" not in sys.modules:
        _load("stallscope_services", _TOOLS / "__init__.py", [str(_TOOLS)])
    return importlib.import_module(f"stallscope_services.{name}")


def _load(name: str, path: Path, inside: list[str]) -> None:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


@pytest.fixture(scope="session")
def services_side() -> None:
    """Need the environment with MLflow's server and the stores' servers."""
    ready = tool("server").ENVIRONMENT / ".ready"
    need(ready.exists(), "there is no .venv-services with servers to talk to: make services-env")


@pytest.fixture(scope="session")
def mlflow_server(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the tracking URI of an MLflow server for all tests: SQLite, artifacts through the
    server.
    """
    with tool("mlflow").mlflow_server(tmp_path_factory.mktemp("servers") / "mlflow") as uri:
        yield uri


@pytest.fixture(name="client")
def mlflow_client(mlflow_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client of the MLflow server; this process and its children use it from then on."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    return MlflowClient()


@pytest.fixture(scope="session")
def spark_cluster(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run a standalone Spark with one worker: ``master`` and the folder ``work`` of executors' logs."""
    spark = tool("spark")
    need(
        spark.READY.exists(),
        "there is no Spark in .venv-services: tools/services-env.sh .venv-services spark",
    )
    with spark.spark_cluster(tmp_path_factory.mktemp("servers")) as cluster:
        yield cluster


@contextmanager
def started(scheme: str, folder: Path) -> Iterator[Store]:
    """Run a store's server for the duration of the block."""
    if scheme == "s3":
        with tool("s3").s3_server(folder) as service:
            yield S3Store(service)
    elif scheme == "az":
        with tool("azure").azure_server(folder) as service:
            yield AzureStore(service)
    else:
        gcs = tool("gcs").gcs_server(folder)
        with gcs as service, signed_in(service.endpoint, folder, service.bucket) as google:
            yield GcsStore(google)


@pytest.fixture(scope="session")
def s3_store(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Run one S3 server for all tests."""
    with started("s3", tmp_path_factory.mktemp("servers") / "s3") as store:
        yield store


@pytest.fixture(scope="session")
def gs_store(services_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Run one emulator of Google Cloud Storage for all tests."""
    with started("gs", tmp_path_factory.mktemp("servers") / "gcs") as store:
        yield store


@pytest.fixture(scope="session")
def azurite_side(services_side: None) -> None:
    """Need Azurite, which npm installs."""
    need(tool("azure").READY.exists(), "there is no Azurite in .venv-services: make services-env")


@pytest.fixture(scope="session")
def az_store(azurite_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Run one Azurite for all tests."""
    with started("az", tmp_path_factory.mktemp("servers") / "azure") as store:
        yield store


def _bucket(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Create an empty bucket that this process and its children then use."""
    store.use(monkeypatch)
    yield store.new_bucket()
    store.forget()


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Create an empty bucket of each kind of store in turn."""
    yield from _bucket(request.getfixturevalue(f"{request.param}_store"), monkeypatch)


@pytest.fixture
def s3_bucket(s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    yield from _bucket(s3_store, monkeypatch)


@pytest.fixture
def gs_bucket(gs_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    yield from _bucket(gs_store, monkeypatch)


@pytest.fixture
def az_bucket(az_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    yield from _bucket(az_store, monkeypatch)


@dataclass(frozen=True)
class Sshd:
    """An sshd, and the home folder of a user who reaches it as ``alpha`` and ``beta``."""

    port: int
    user: str
    known_hosts: Path
    key: Path
    home: Path
    service: Any

    def configure(self, *settings: str) -> None:
        """Rewrite the user's ssh configuration for the hosts, with more settings."""
        config = self.service.config(("alpha", "beta"), *settings)
        (self.home / ".ssh" / "config").write_text(config)


@pytest.fixture(scope="session")
def sshd_side() -> None:
    """Need the distribution's sshd."""
    installed = tool("ssh").find_sshd() is not None
    need(installed, "there is no sshd to connect to: make services-env")


@pytest.fixture(scope="session")
def ssh_service(sshd_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run one sshd for all tests."""
    with tool("ssh").ssh_server(tmp_path_factory.mktemp("servers") / "ssh") as service:
        yield service


@pytest.fixture
def sshd(ssh_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """Use a home folder with an ssh configuration for the sshd."""
    import sshfs

    yield use_sshd(ssh_service, tmp_path / "home", monkeypatch)
    sshfs.SSHFileSystem.clear_instance_cache()


def use_sshd(service: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> Sshd:
    """Make ``home`` the home folder of a user with known host keys and an accepted key."""
    import sshfs

    files = home / ".ssh"
    files.mkdir(parents=True)
    shutil.copy(service.known_hosts, files / "known_hosts")
    known = Sshd(service.port, service.user, files / "known_hosts", service.key, home, service)
    known.configure(f"IdentityFile {service.key}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    # Connections are cached per process.
    sshfs.SSHFileSystem.clear_instance_cache()
    return known
