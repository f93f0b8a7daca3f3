"""Run a Prometheus that scrapes one address, with the project's configuration and alert rules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from .server import ServerError, answers_http, free_port, running

_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "prometheus"
_PROGRAMS = ("prometheus", "promtool")


@dataclass(frozen=True)
class Prometheus:
    """A server that evaluates rules every second, and scrapes every ten: a scrape may take as long."""

    address: str

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Return the current series of an expression: ``metric`` and ``value``."""
        result: list[Mapping[str, Any]] = self._data("query", query=expression)["result"]
        return result

    def alerts(self) -> list[Mapping[str, Any]]:
        """Return the alerts that are pending or fire: ``labels``, ``annotations``, ``state``."""
        alerts: list[Mapping[str, Any]] = self._data("alerts")["alerts"]
        return alerts

    def evaluated(self) -> int:
        """Return how many of the rules have been evaluated without an error."""
        rules = [rule for group in self._data("rules")["groups"] for rule in group["rules"]]
        return sum(rule["health"] == "ok" for rule in rules)

    def _data(self, name: str, **query: str) -> Any:
        with urlopen(f"{self.address}/api/v1/{name}?{urlencode(query)}", timeout=60) as answer:
            return json.load(answer)["data"]


def is_installed() -> bool:
    """Tell whether Debian's package is there."""
    return all(map(shutil.which, _PROGRAMS))


@contextmanager
def prometheus_server(folder: Path, target: str, token: str) -> Iterator[Prometheus]:
    """Run a server for the duration of the block, which scrapes a host and port with a bearer token."""
    if not is_installed():
        raise ServerError("there is no Prometheus: apt-get install prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_CONFIGURATION / "alerts.yaml", folder)
    (folder / "stallscope-token").write_text(token)
    text = (_CONFIGURATION / "prometheus.yaml").read_text()
    for given, changed in (
        ("stallscope-watch:9464", target),
        ("scrape_interval: 15s", "scrape_interval: 10s"),
    ):
        assert given in text
        text = text.replace(given, changed)
    (folder / "prometheus.yaml").write_text(f"global: {{evaluation_interval: 1s}}\n{text}")
    port = free_port()
    command: list[str | Path] = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    address = f"http://127.0.0.1:{port}"
    with running(command, folder, lambda: answers_http(f"{address}/-/ready")):
        yield Prometheus(address)
