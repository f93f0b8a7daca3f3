"""Start a part of Stallscope as another process, with training's interpreter and import path."""

from __future__ import annotations

import json
import sys
from typing import List

# It gets training's import path, however that was set up.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from %s import main
sys.exit(main())
"""


def program(module: str, *arguments: str) -> List[str]:
    """Return the command that runs the function ``main`` of a module.

    Args:
        module: its name, such as ``stallscope.cli.main``.
        arguments: what follows the program's name in ``sys.argv``.
    """
    paths = [path for path in sys.path if isinstance(path, str)]
    return [sys.executable, "-c", _PROGRAM % module, *arguments, json.dumps(paths)]
