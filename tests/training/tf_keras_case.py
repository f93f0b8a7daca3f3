"""Train a small model with Keras 2 in an environment where ``import keras`` is Keras 3.

python tf_keras_case.py LOGS                             with the package tf_keras
TF_USE_LEGACY_KERAS=1 python tf_keras_case.py LOGS       with tf.keras, which is then that package
"""

from __future__ import annotations

import os
import sys

import numpy as np
import tensorflow as tf

if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    keras = tf.keras
else:
    import tf_keras as keras

from stallscope.keras import StepLogger, synthetic_like


class Batches(keras.utils.Sequence):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full((16, 4), index, np.float32), np.zeros((16, 2), np.float32)


def main() -> None:
    model = keras.Sequential([keras.layers.Dense(8, input_shape=(4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(Batches(), epochs=2, callbacks=[StepLogger(sys.argv[1])], verbose=0)
    assert len(synthetic_like(Batches())) == 10


if __name__ == "__main__":
    main()
