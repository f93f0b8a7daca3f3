"""Ask for a part of the timeline as its script does, and read the answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from werkzeug.test import TestResponse

from stallscope.dashboard import RunStore, create_app

TYPES = {"f8": "<f8", "f4": "<f4", "i4": "<i4", "u2": "<u2"}
ALL = {"begin": "0", "end": "1e6", "rows": "0-1000", "lanes": "140", "columns": "1100"}


def ask(store: RunStore, run_id: str, **changes: str) -> TestResponse:
    """Ask for the whole timeline of a run, or for what other values of the query say."""
    client = create_app(store).server.test_client()
    return client.get(f"/timeline/{run_id}", query_string={**ALL, **changes})


def read(response: TestResponse) -> dict[str, Any]:
    """Return an answer as the script reads it."""
    assert response.status_code == 200, response.get_data(as_text=True)
    body = response.get_data()
    length = int.from_bytes(body[:4], "little")
    answer = json.loads(body[4 : 4 + length])
    for name, (kind, count, at) in answer["arrays"].items():
        assert (4 + length + at) % 8 == 0
        array = np.frombuffer(body, TYPES[kind], count, 4 + length + at)
        if kind == "u2":
            low, unit = answer["scales"][name]
            array = np.where(array == 65535, np.nan, low + array * unit)
        answer[name] = array
    shape = (-1, len(answer["edges"]) - 1, answer["cells"])
    return {
        **answer,
        "stages": answer["stages"].reshape(shape),
        "late": answer["late"].reshape(shape),
    }
