"""Train elastically with Keras: for test_generations.py.

    horovodrun … --host-discovery-script FILE python generations_keras.py OUT fit|loop

``fit``: with ``CommitStateCallback``. ``loop``: one logger stays open, and one ``tf.function`` makes all
steps; its first call reduces no gradients. It ends before the step whose number is in OUT/last-step.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import horovod.tensorflow as hvd_tensorflow
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from ending import is_over

from stallscope.keras import StepLogger

STEPS_PER_EPOCH = 50
# More than it ever trains.
EPOCHS = 10_000
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def slowly(batch: tf.Tensor) -> tf.Tensor:
    """Return the batch after the time of a real loader."""
    time.sleep(0.03)
    return batch


def dataset() -> tf.data.Dataset:
    random = np.random.default_rng(hvd.rank())
    x, y = random.random((1600, 8), np.float32), random.integers(0, 4, 1600)

    def slow_batch(inputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        batch = tf.py_function(slowly, [inputs], tf.float32)
        return tf.ensure_shape(batch, (16, 8)), labels

    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16).map(slow_batch)


def train_in_fit(out: Path, model: tf.keras.Model) -> None:
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
    model.compile(optimizer, LOSS)
    # A joining process receives the state's variables, so they must exist before the first step.
    optimizer.build(model.trainable_variables)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    def stop_after(batch: int, logs: object) -> None:
        if is_over(out, int(optimizer.iterations)):
            model.stop_training = True

    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState) -> None:
        model.fit(
            dataset(),
            steps_per_epoch=STEPS_PER_EPOCH,
            epochs=EPOCHS - state.epoch,
            verbose=0,
            callbacks=[
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
                StepLogger(out / "logs", run_name="generations", flush_seconds=0.1),
                tf.keras.callbacks.LambdaCallback(on_batch_end=stop_after),
            ],
        )

    train(state)


def train_in_a_loop(out: Path, model: tf.keras.Model) -> None:
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def train_step(inputs: tf.Tensor, labels: tf.Tensor, reduces: bool = True) -> None:
        with tf.GradientTape() as tape:
            loss = LOSS(labels, model(inputs, training=True))
        if reduces:
            tape = log.watch(hvd_tensorflow.DistributedGradientTape(tape))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    train_step(*next(iter(dataset())), reduces=False)
    state = hvd_tensorflow.elastic.TensorFlowKerasState(model, optimizer)

    @hvd_tensorflow.elastic.run
    def train(state: hvd_tensorflow.elastic.TensorFlowKerasState) -> None:
        batches = iter(dataset())
        while not is_over(out, int(optimizer.iterations)):
            with log.step():
                inputs, labels = next(batches)
                log.mark("data", inputs)
                train_step(inputs, labels)
            if int(optimizer.iterations) % 10 == 0:
                state.commit()

    with StepLogger(
        out / "logs", model=model, optimizer=optimizer, run_name="generations", flush_seconds=0.1
    ) as log:
        train(state)


def main() -> None:
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(4)])
    train = {"fit": train_in_fit, "loop": train_in_a_loop}[sys.argv[2]]
    train(Path(sys.argv[1]), model)


if __name__ == "__main__":
    main()
