"""Reports on which of Horovod's settings to fix."""

from .registry import FORMATS, render

__all__ = ["FORMATS", "render"]
