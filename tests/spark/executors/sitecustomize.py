"""Hide packages from the executors of tests that neither Spark nor kernels may need."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any

MISSING = ("scipy", "plotly", "filelock", "cattrs", "jinja2", "rich", "dash", "tenacity")
#: If this variable is set, executors have the package that opens URLs.
HAVE_FSSPEC = "STALLSCOPE_TEST_HAVE_FSSPEC"


class Missing(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        top = name.partition(".")[0]
        if top in MISSING or (top == "fsspec" and HAVE_FSSPEC not in os.environ):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
