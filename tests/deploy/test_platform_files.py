"""The files for platform teams: Kubernetes' manifest, the image's health check, the GitHub Action."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from stallscope.cli.main import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RESOURCES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def schema(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def named(resource: Any) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def pods() -> list[Any]:
    """Return the specifications of all pods in the manifest."""
    specs = [resource.get("spec", {}) for resource in RESOURCES]
    specs = [spec.get("jobTemplate", {}).get("spec", spec) for spec in specs]
    return [spec["template"]["spec"] for spec in specs if "template" in spec]


@pytest.mark.parametrize("resource", RESOURCES, ids=named)
def test_a_resource_follows_kubernetes_schema(resource: Any) -> None:
    schemas = schema(ROOT / "tests" / "kubernetes" / "core.schema.json.gz")
    kind = {**schemas["kinds"][resource["kind"]], "definitions": schemas["definitions"]}
    checker = jsonschema.Draft202012Validator(kind)
    assert [error.message for error in checker.iter_errors(resource)] == []
    damaged = {**resource, "spec": {**resource["spec"], "replica": 1}}
    assert not checker.is_valid(damaged)


def test_pods_run_without_privileges_and_write_only_to_volumes() -> None:
    assert len(pods()) == 3
    for pod in pods():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
        assert mounts["logs"]["readOnly"]


def test_services_and_probes_name_ports_of_pods() -> None:
    ports = {
        pod["containers"][0]["name"]: {
            port["name"] for port in pod["containers"][0].get("ports", ())
        }
        for pod in pods()
    }
    assert ports == {"collect": set(), "dashboard": {"http"}, "watch": {"metrics"}}
    for pod in pods():
        (container,) = pod["containers"]
        for probe in ("startupProbe", "livenessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports[container["name"]]
    for resource in RESOURCES:
        if resource["kind"] == "Service":
            name = resource["metadata"]["name"].removeprefix("stallscope-")
            assert {port["targetPort"] for port in resource["spec"]["ports"]} == ports[name]


@pytest.mark.parametrize(
    "arguments", [pod["containers"][0]["args"] for pod in pods()], ids=lambda words: words[0]
)
def test_commands_of_pods_are_valid(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They get as far as reading the volume, which is not there."""
    monkeypatch.setenv("STALLSCOPE_TOKEN", "a-token-of-ours_1234")
    words = [word.replace("/logs", str(tmp_path / "logs")) for word in arguments]
    words = [str(tmp_path / "runs") if word == "/runs" else word for word in words]
    assert main(words) == 2
    assert f"{tmp_path / 'logs'}: no such file or folder" in capsys.readouterr().err


def test_the_image_runs_as_the_user_that_pods_have() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert re.search(r"^USER (\d+:\d+)$", text, re.MULTILINE)[1] == "10001:10001"
    assert {pod["securityContext"]["runAsUser"] for pod in pods()} == {10001}


# -- The health check of the image ----------------------------------------------------------------


def test_printed_commands_build_an_image_with_its_health_check() -> None:
    for path in (DEPLOY / "Containerfile", ROOT / "docs" / "platform.md"):
        builds = re.findall(r"podman build .*", path.read_text("utf-8"))
        assert builds
        assert all("--format docker" in build for build in builds)


@pytest.fixture(scope="module")
def healthy() -> Any:
    spec = importlib.util.spec_from_file_location("healthy", DEPLOY / "healthy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("stallscope dashboard /logs", "8050"),
        ("stallscope dashboard /logs --port 80", "80"),
        ("stallscope dashboard --port=80", "80"),
        ("stallscope watch /logs --stay", None),
        ("stallscope watch /logs --metrics-port 9464", "9464"),
        ("catatonit -- stallscope watch --metrics-port=9464 /logs", "9464"),
        ("stallscope collect /logs --to /runs", None),
    ],
)
def test_the_health_check_finds_the_port(healthy: Any, command: str, port: str | None) -> None:
    assert healthy.port_of(command.split()) == port


@pytest.fixture
def answering() -> Iterator[tuple[int, list[int]]]:
    """Serve on a free port: the port, and the status to answer with."""
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0] if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, status
    server.shutdown()
    server.server_close()


def test_the_health_check_asks_the_command(
    healthy: Any,
    answering: tuple[int, list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port, status = answering
    words = tmp_path / "cmdline"
    # The first process of this machine is no command of an image.
    monkeypatch.setattr(healthy, "Path", lambda _: words)
    words.write_text(f"stallscope\0dashboard\0--port\0{port}\0")
    assert healthy.main() == 0
    status[0] = 500
    assert healthy.main() == 1
    words.write_text("stallscope\0collect\0/logs\0")
    assert healthy.main() == 0
    capsys.readouterr()


# -- The GitHub Action ----------------------------------------------------------------------------


def test_the_action_follows_githubs_schema() -> None:
    checker = jsonschema.Draft7Validator(
        schema(ROOT / "tests" / "deploy" / "github-action.schema.json.gz")
    )
    assert [error.message for error in checker.iter_errors(ACTION)] == []
    assert not checker.is_valid({**ACTION, "runs": {"using": "composite"}})


def run_step(name: str, folder: Path, **inputs: str) -> tuple[int, str, dict[str, str], str]:
    """Run a step of the action as GitHub does: status, output, outputs of the step, job summary."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"] == name]
    values = {name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    known = {f"inputs.{name}": value for name, value in values.items()}
    known["github.action_path"] = "/actions/stallscope"
    assert "${{" not in step["run"]
    variables = {
        name: re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: known[match[1]], str(value))
        for name, value in step["env"].items()
    }
    outputs, summary = folder / "outputs", folder / "summary"
    outputs.touch()
    summary.touch()
    variables |= {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary)}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    given_outputs = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, done.stdout + done.stderr, given_outputs, summary.read_text()


@pytest.mark.broad
def test_the_action_reports_and_fails_where_a_condition_holds(tmp_path: Path) -> None:
    slow = str(ROOT / "sample_logs" / "slow-input-one-rank")
    status, printed, outputs, summary = run_step(
        "Report",
        tmp_path,
        runs=f"{slow}\n",
        baseline=str(ROOT / "sample_logs" / "synthetic"),
        fail_if="input.share>90%\nstragglers>0\n",
        python=sys.executable,
        format="json",
    )
    assert status == 1, printed
    assert outputs == {"out": "stallscope-reports", "status": "1"}
    assert "rank 1" in summary
    (report,) = (tmp_path / "stallscope-reports").glob("*.json")
    assert json.loads(report.read_text())["run"]["name"] == "slow-input-one-rank"


@pytest.mark.broad
def test_the_action_succeeds_on_a_clean_run_in_a_folder_with_a_hostile_name(tmp_path: Path) -> None:
    clean = tmp_path / "a $(touch stolen) run"
    clean.symlink_to(ROOT / "sample_logs" / "clean")
    status, printed, outputs, _ = run_step(
        "Report", tmp_path, runs=clean.name, fail_if="stragglers>0", python=sys.executable
    )
    assert status == 0, printed
    assert outputs["status"] == "0"
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize(
    ("inputs", "installed"),
    [
        ({}, "/actions/stallscope[app]"),
        ({"install": "stallscope[app]==0.2.0"}, "stallscope[app]==0.2.0"),
    ],
)
def test_the_action_installs_its_own_source_or_what_is_named(
    inputs: dict[str, str], installed: str, tmp_path: Path
) -> None:
    status, printed, _, _ = run_step("Install Stallscope", tmp_path, python="echo", **inputs)
    assert (status, printed) == (0, f"-m pip install --quiet {installed}\n")


def test_the_hook_calls_a_command_that_there_is() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    script, command = hook["entry"].split()
    assert script == "stallscope"
    assert main([command, str(ROOT / "sample_logs" / "clean"), "--fail-if", "stragglers>0"]) == 0
