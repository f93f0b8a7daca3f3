"""The Keras 2 of the program: ``tf_keras`` where it is imported, otherwise ``tf.keras``."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

#: Beside a Keras 3, ``tf.keras`` would be that one.
keras: Any = sys.modules.get("tf_keras") or tf.keras


def keras_version() -> str:
    """Its version; of ``tf.keras`` only Keras 3 has an attribute of its own."""
    for module in (sys.modules.get("tf_keras"), keras, sys.modules.get("keras")):
        version = getattr(module, "__version__", None)
        if version is not None:
            return str(version)
    return "2"
