"""Find the program's Keras 2: ``tf.keras`` where that is Keras 2, otherwise ``tf_keras``."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf


def _keras_2() -> Any:
    # Keras 3 always has the attribute.
    if str(getattr(tf.keras, "__version__", None) or "2.").startswith("2."):
        return tf.keras
    return sys.modules.get("tf_keras") or tf.keras


keras: Any = _keras_2()


def keras_version() -> str:
    """Return the version of Keras 2, from the module that has it."""
    for module in (keras, sys.modules.get("tf_keras"), sys.modules.get("keras")):
        version = getattr(module, "__version__", None)
        if version is not None:
            return str(version)
    return "2"
