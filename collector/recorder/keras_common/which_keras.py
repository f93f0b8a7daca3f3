"""Find out whether a program trains with Keras 2 or 3, which have different internals."""

from __future__ import annotations

import os
import sys
from importlib import metadata


def is_keras_2() -> bool:
    """Return whether it is Keras 2, as imported, or otherwise as ``import keras`` would find it.

    ``tf_keras`` is Keras 2 installed with Keras 3, and so is ``tf.keras`` with
    ``TF_USE_LEGACY_KERAS``.
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
            # TensorFlow before 2.4 has its own Keras.
            return True
    return str(version).startswith("2.")
