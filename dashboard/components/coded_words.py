"""A sentence with code in it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from stallscope.text.recorded import code_parts


def coded_words(text: str) -> list[Any]:
    """Show text between backticks as code, the rest as words."""
    return [dmc.Code(part) if is_code else part for part, is_code in code_parts(text)]
