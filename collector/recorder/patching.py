"""Replace attributes of single instances, and restore them."""

from __future__ import annotations

from typing import Any, Callable, Dict


def patch(owner: Any, name: str, replacement: Any) -> Callable[[], None]:
    """Replace an attribute of an instance or a class; return the function that restores it."""
    had_own, original = name in own_attributes(owner), getattr(owner, name)
    setattr(owner, name, replacement)

    def restore() -> None:
        # Keep a replacement that was made since.
        if own_attributes(owner).get(name) is not replacement:
            return
        if had_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return restore


def own_attributes(owner: Any) -> Dict[str, Any]:
    """Return the attributes of the instance itself; none where its class has slots."""
    attributes: Dict[str, Any] = getattr(owner, "__dict__", {})
    return attributes
