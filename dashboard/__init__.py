"""The dashboard: analyses of runs in the browser.

``create_app`` makes the app for a store of runs, ``serve`` serves it on this machine.
"""

from .app import create_app
from .server import serve
from .store import RunStore

__all__ = ["RunStore", "create_app", "serve"]
