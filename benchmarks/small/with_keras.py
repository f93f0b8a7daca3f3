"""A small training of Keras 2 or 3, recorded: OUT LAYERS STEPS, and "no-stages".

KERAS_BACKEND selects the Keras.
"""

import sys

import keras
import numpy as np

from stallscope.keras import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WIDTH, BATCH = 64, 32
hidden = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(layers)]
model = keras.Sequential([keras.Input((WIDTH,)), *hidden, keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.001), loss)
inputs, labels = np.zeros((BATCH * steps, WIDTH), "float32"), np.zeros(BATCH * steps, "int32")
log = StepLogger(out, stages="no-stages" not in sys.argv)
model.fit(inputs, labels, batch_size=BATCH, verbose=0, callbacks=[log])
