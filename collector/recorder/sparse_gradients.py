"""Sparse gradients, which are gathered from all ranks instead of reduced."""

from typing import Any, Dict, List

# More names and sizes add no information.
_MOST = 4


def largest_gathered(found: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the fact: the number of gathered gradients, and the largest of them.

    Args:
        found: for each gradient its ``name``, the ``shape`` of the whole, the bytes per number
            (``itemsize``), and the ``rows`` that a rank sends per step, None where unknown.
    """

    def numbers(one: Dict[str, Any]) -> int:
        product = 1
        for size in one["shape"]:
            product *= size
        return product

    largest = sorted(found, key=numbers, reverse=True)[:_MOST]
    return {"count": len(found), "largest": largest}
