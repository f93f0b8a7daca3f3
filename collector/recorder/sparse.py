"""Gradients that are gathered from all ranks, as sparse ones are, and not reduced."""

from typing import Any, Dict, List

# Their names and sizes; more of them say nothing new.
_MOST = 4


def largest_gathered(found: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The fact: how many there are, and the largest of them.

    Args:
        found: of each its ``name``, the ``shape`` of the whole, the bytes of a number (``itemsize``),
            and the ``rows`` that a rank gives in a step, None where that is not known.
    """

    def numbers(one: Dict[str, Any]) -> int:
        product = 1
        for size in one["shape"]:
            product *= size
        return product

    largest = sorted(found, key=numbers, reverse=True)[:_MOST]
    return {"count": len(found), "largest": largest}
