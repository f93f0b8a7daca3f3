"""Any log format to the one table of steps."""

from .base import Parsed, Parser
from .reader import read
from .registry import PARSERS

__all__ = ["PARSERS", "Parsed", "Parser", "read"]
