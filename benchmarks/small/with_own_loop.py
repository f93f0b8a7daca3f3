"""A small training of Keras 2 without ``fit``, recorded: OUT LAYERS STEPS."""

import sys

import tensorflow as tf

from stallscope.keras import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WIDTH, BATCH = 64, 32
hidden = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(layers)]
model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), *hidden, tf.keras.layers.Dense(10)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.SGD(0.001)
optimizer.build(model.trainable_variables)
batch = tf.zeros((BATCH, WIDTH)), tf.zeros(BATCH, tf.int32)
batches = iter(tf.data.Dataset.from_tensors(batch).repeat())

with StepLogger(out, model=model, optimizer=optimizer) as log:

    @tf.function
    def train(inputs: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True))
        gradients = log.watch(tape).gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    with log.epoch():
        for _ in range(steps):
            with log.step():
                inputs, labels = next(batches)
                log.mark("data", inputs)
                train(inputs, labels)
