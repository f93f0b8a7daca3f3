"""The Keras that ``stallscope.keras`` records."""

from __future__ import annotations

import sys
from importlib import metadata
from types import ModuleType

import pytest

from stallscope.collector.recorder.keras_common.fit_callback import is_keras_2


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("keras", "tf_keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)


def imported(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    module = ModuleType(name)
    module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(
    ("version", "two"), [("2.15.0", True), ("3.5.0", False), ("3.15.1", False)]
)
def test_the_imported_keras_decides(
    monkeypatch: pytest.MonkeyPatch, version: str, two: bool
) -> None:
    imported(monkeypatch, "keras", version)
    assert is_keras_2() is two


def test_tf_keras_is_keras_2_next_to_a_keras_3(monkeypatch: pytest.MonkeyPatch) -> None:
    imported(monkeypatch, "keras", "3.15.1")
    imported(monkeypatch, "tf_keras", "2.21.0")
    assert is_keras_2()


@pytest.mark.parametrize(("value", "two"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_tensorflow_can_be_set_to_use_keras_2(
    monkeypatch: pytest.MonkeyPatch, value: str, two: bool
) -> None:
    imported(monkeypatch, "keras", "3.15.1")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", value)
    assert is_keras_2() is two


@pytest.mark.parametrize(("installed", "two"), [("2.15.0", True), ("3.15.1", False), (None, True)])
def test_before_an_import_the_installed_version_decides(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, two: bool
) -> None:
    def version(_: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError
        return installed

    monkeypatch.setattr(metadata, "version", version)
    assert is_keras_2() is two
