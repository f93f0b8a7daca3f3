"""The schemas of docs/, and what documents break of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_DOCS = Path(__file__).parents[2] / "docs"


@cache
def schema(name: str) -> dict[str, Any]:
    """Return a schema by the name of its document."""
    content: dict[str, Any] = json.loads((_DOCS / f"{name}.schema.json").read_text("utf-8"))
    return content


@cache
def validator(name: str) -> Draft202012Validator:
    """Return what checks documents; it has checked the schema itself, which takes longer."""
    Draft202012Validator.check_schema(schema(name))
    return Draft202012Validator(schema(name))


def errors_in(name: str, document: Any) -> list[str]:
    """Return a message for each place where a document breaks its schema."""
    return [
        f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(document)
    ]
