"""Exit with 0 if a container's command works: the health check of the image.

A dashboard, and a watch that serves figures, must answer at ``/health``. Other commands work while they
run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.request import urlopen

#: By the command, the option with its port, and the port without that option; None if it serves nothing.
PORTS = {"dashboard": ("--port", "8050"), "watch": ("--metrics-port", None)}


def port_of(words: list[str]) -> str | None:
    """Return the port at which a command line serves; None if it serves nothing."""
    command = next((word for word in words if word in PORTS), None)
    if command is None:
        return None
    option, port = PORTS[command]
    for word, following in zip(words, [*words[1:], ""]):
        if word == option:
            port = following
        elif word.startswith(f"{option}="):
            port = word.partition("=")[2]
    return port


def main() -> int:
    words = Path("/proc/1/cmdline").read_text().split("\0")
    port = port_of(words)
    if port is None:
        return 0
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return int(answer.status != 200)
    except OSError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
