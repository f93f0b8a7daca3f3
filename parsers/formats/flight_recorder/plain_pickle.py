"""Read a pickle of plain data: dictionaries, lists, tuples, sets, texts, bytes and numbers.

``pickle`` runs code that a file names. Here a pickle is read operation by operation, without those that
name code, so that nothing in a file is ever imported or called.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

from stallscope.errors import UnreadableError

#: The largest pickle that is read.
MOST_BYTES = 64 << 20

_CODE = frozenset(
    {
        *("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"),
        *("EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"),
    }
)
_VALUES = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset(("PROTO", "FRAME"))
# Hashing nested tuples could take forever, and dumps need none as keys.
_KEYS = (str, bytes, int, float, type(None))


def load_plain(path: str, data: bytes) -> Any:
    """Read a pickle.

    Args:
        path: the file's name in messages.
        data: the pickle.

    Raises:
        UnreadableError: if it names code, is damaged, or is too large.
    """
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"{path}: a pickle of more than {MOST_BYTES >> 20} MiB is not read")
    stack = _Stack()
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _CODE:
                raise UnreadableError(
                    f"{path}: a pickle that names code, unlike a dump: none of it was run"
                )
            if operation.name == "STOP":
                return stack.pop()
            stack.apply(operation.name, argument)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableError(f"{path}: the pickle is damaged or incomplete") from error
    raise UnreadableError(f"{path}: the pickle is incomplete")


class _Stack:
    """The stack of values of a pickle."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        #: The values below each mark.
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self._values.pop()

    def apply(self, name: str, argument: Any) -> None:
        """Apply one operation.

        Raises:
            ValueError: if it is not an operation of plain data; other exceptions if values are missing.
        """
        if name in _VALUES:
            self._values.append(argument)
        elif name in _CONSTANTS:
            self._values.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            self._tuple(_TUPLES[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._values[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._values[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._values.append(self._memo[argument])
        elif name == "MARK":
            self._below.append(self._values)
            self._values = []
        elif name not in _IGNORED:
            self._fill(name)

    def _tuple(self, count: int) -> None:
        if len(self._values) < count:
            raise ValueError("too few values")
        self._values[-count:] = [tuple(self._values[-count:])]

    def _fill(self, name: str) -> None:
        """Put values into the container below them."""
        if name == "APPEND":
            self._extend([self._values.pop()])
        elif name == "SETITEM":
            self._set_items([self._values.pop(-2), self._values.pop()])
        elif name == "TUPLE":
            values = tuple(self._to_mark())
            self._values.append(values)
        elif name == "APPENDS":
            self._extend(self._to_mark())
        elif name == "SETITEMS":
            self._set_items(self._to_mark())
        elif name == "ADDITEMS":
            self._add_items(self._to_mark())
        else:
            raise ValueError(f"no operation of plain data: {name}")

    def _to_mark(self) -> list[Any]:
        values, self._values = self._values, self._below.pop()
        return values

    def _extend(self, values: list[Any]) -> None:
        if type(self._values[-1]) is not list:
            raise ValueError("not a list")
        self._values[-1].extend(values)

    def _set_items(self, values: list[Any]) -> None:
        into = self._values[-1]
        if type(into) is not dict or not all(isinstance(key, _KEYS) for key in values[::2]):
            raise ValueError("not a dictionary with plain keys")
        into.update(zip(values[::2], values[1::2], strict=True))

    def _add_items(self, values: list[Any]) -> None:
        into = self._values[-1]
        if type(into) is not set or not all(isinstance(value, _KEYS) for value in values):
            raise ValueError("not a set of plain values")
        into.update(values)
