"""Print shell commands that give uv the settings that pip has: uv reads its own only.

    python uv_settings.py

Variables that are set already stay as they are.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

#: By pip's setting: uv's variable, and what separates several values there.
SAME = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def pip_settings() -> Iterator[tuple[str, str]]:
    """Yield the names and values of pip's settings; those of variables come last, as they count."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in sorted(lines, key=lambda setting: setting.startswith(":env:")):
        name, _, value = line.partition("=")
        yield name.rpartition(".")[2], ast.literal_eval(value)


def main() -> None:
    # As pip does: the best version of all indexes, not of the first index with the package.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for name, value in pip_settings():
        if name in SAME:
            variable, separator = SAME[name]
            variables[variable] = separator.join(value.split())
    for variable, value in variables.items():
        if variable not in os.environ:
            print(f"export {variable}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
