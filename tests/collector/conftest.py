"""What tests of collecting share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def client(mlflow_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of a real MLflow server, which is the one that everybody asks."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    return MlflowClient()
