"""Text in other encodings than UTF-8: what some editors and shells make of logs."""

from __future__ import annotations

import codecs


def in_utf8(data: bytes) -> bytes:
    """Convert bytes to UTF-8 if they start with a UTF-16 mark, and drop the mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(codecs.BOM_UTF8)
