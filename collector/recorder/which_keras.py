"""Which Keras a program trains with: 2 and 3 have nothing of their insides in common."""

from __future__ import annotations

import os
import sys
from importlib import metadata


def is_keras_2() -> bool:
    """Whether it is Keras 2: what is imported says so, otherwise what ``import keras`` would find.

    ``tf_keras`` is Keras 2 beside a Keras 3, and so is ``tf.keras`` with ``TF_USE_LEGACY_KERAS``.
    """
    if "tf_keras" in sys.modules or os.environ.get("TF_USE_LEGACY_KERAS", "0") in (
        "1",
        "true",
        "True",
    ):
        return True
    version = getattr(sys.modules.get("keras"), "__version__", None)
    if version is None:
        try:
            version = metadata.version("keras")
        except metadata.PackageNotFoundError:
            # TensorFlow before 2.4 has a Keras of its own.
            return True
    return str(version).startswith("2.")
