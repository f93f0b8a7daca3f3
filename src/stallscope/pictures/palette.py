"""Colours: one per stage everywhere, told apart by people with any kind of colour vision.

From the palette of Okabe and Ito (Color Universal Design, 2008), each with its shade for dark pages.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    light: str
    dark: str


COLOURS: dict[str, Colour] = {
    "input": Colour("#e69f00", "#f0b429"),
    "compute": Colour("#0072b2", "#4ba3d9"),
    "other": Colour("#8a8f98", "#9aa1ab"),
    "imbalance": Colour("#d55e00", "#f07f33"),
    "wait": Colour("#e8b9a0", "#7d4a30"),
    "allreduce": Colour("#009e73", "#2cc79b"),
    "startup": Colour("#c3c7cd", "#555b64"),
    "warmup": Colour("#a6abb3", "#6d747e"),
    "steps": Colour("#0072b2", "#4ba3d9"),
    "validation": Colour("#56b4e9", "#79c6f2"),
    "checkpoint": Colour("#cc79a7", "#dd97bd"),
    "epoch_gap": Colour("#f0e442", "#d6cb3a"),
}
