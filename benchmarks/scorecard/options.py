"""Types of command line options: lists of words and of numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def words(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Make a parser of comma-separated words that rejects all but the allowed ones."""

    def parse(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        unknown = set(given) - set(allowed)
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown.pop()} is none of {', '.join(allowed)}")
        return given

    return parse


def numbers(kind: type) -> Callable[[str], tuple[float, ...]]:
    """Make a parser of comma-separated numbers."""
    return lambda text: tuple(kind(number) for number in text.split(","))


def at_least(fewest: int) -> Callable[[str], int]:
    """Make a parser of whole numbers that rejects smaller ones."""

    def parse(text: str) -> int:
        if int(text) < fewest:
            raise argparse.ArgumentTypeError(f"{text} is less than {fewest}")
        return int(text)

    return parse
