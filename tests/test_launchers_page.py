"""The page of launchers names every script, and its manifests follow the schemas of their operators."""

from __future__ import annotations

import copy
import gzip
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "docs" / "launching"
PAGE = ROOT / "docs" / "launching.md"
SCHEMAS = ROOT / "tests" / "kubernetes"
#: By name, the API's version, which is not in the schema.
VERSIONS = {"mpijob": "kubeflow.org/v2beta1", "pytorchjob": "kubeflow.org/v1"}
REPLICAS = {"mpijob": "mpiReplicaSpecs", "pytorchjob": "pytorchReplicaSpecs"}


def manifest(name: str) -> Any:
    return yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())


def schema(name: str) -> Any:
    """Return the schema of a resource; unlike the cluster, it refuses unknown fields instead of
    dropping them.
    """
    return _closed(json.loads(gzip.decompress((SCHEMAS / f"{name}.schema.json.gz").read_bytes())))


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _closed(inner) for name, inner in part.items()}
    if isinstance(part.get("properties"), dict) and part.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    if part.get("x-kubernetes-int-or-string"):
        closed["type"] = ["integer", "string"]
    return closed


def errors(name: str, document: Any) -> list[str]:
    checker = jsonschema.Draft4Validator(schema(name))
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(document)]


def test_the_page_links_every_script_and_shows_how_to_call_it() -> None:
    page = PAGE.read_text()
    linked = set(re.findall(r"\]\(launching/([\w.]+)\)", page))
    scripts = {path.name for path in MANIFESTS.iterdir() if path.is_file()}
    assert linked == {name for name in scripts if not name.startswith("train")}
    for script in MANIFESTS.glob("*.sh"):
        (usage,) = re.findall(r"^#     (.*)$", script.read_text(), re.MULTILINE)
        assert f"    {usage}" in page


def test_every_manifest_has_a_schema() -> None:
    assert {path.stem for path in MANIFESTS.glob("*.yaml")} == set(VERSIONS)


@pytest.mark.parametrize("name", VERSIONS)
def test_a_manifest_follows_its_schema(name: str) -> None:
    document = manifest(name)
    assert document["apiVersion"] == VERSIONS[name]
    assert document["kind"].lower() == name
    assert errors(name, document) == []


@pytest.mark.parametrize("name", VERSIONS)
def test_misspelt_fields_and_wrong_types_are_found(name: str) -> None:
    document = manifest(name)
    replicas = document["spec"][REPLICAS[name]]["Worker"]
    for damage in ({"replica": 1}, {"replicas": "one"}, {"template": {"spec": {"container": []}}}):
        damaged = copy.deepcopy(document)
        damaged["spec"][REPLICAS[name]]["Worker"] = {**replicas, **damage}
        assert errors(name, damaged)


@pytest.mark.parametrize("name", VERSIONS)
def test_volumes_that_are_mounted_are_there(name: str) -> None:
    for replica in manifest(name)["spec"][REPLICAS[name]].values():
        pod = replica["template"]["spec"]
        mounted = {
            mount["name"]
            for container in pod["containers"]
            for mount in container.get("volumeMounts", ())
        }
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}
