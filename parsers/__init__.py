"""Parsers: any log format in, one table of steps out."""

from .base import Parsed, Parser
from .reader import read
from .registry import PARSERS

__all__ = ["PARSERS", "Parsed", "Parser", "read"]
