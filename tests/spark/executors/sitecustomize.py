"""On executors of tests: what Spark itself does not need, and kernels must not, cannot be imported."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

MISSING = ("scipy", "plotly", "fsspec", "filelock", "cattrs", "jinja2", "rich", "dash", "tenacity")


class Missing(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
