"""The recorder for Keras: ``from stallscope.keras import StepLogger``.

There is one recorder for Keras 2 (``tf.keras`` of TensorFlow up to 2.15, and ``tf_keras``), and one for
Keras 3 on any backend. The Keras that the program imports determines which one this is.
"""

from stallscope.collector.recorder.gathering import gather_logs
from stallscope.collector.recorder.keras_common.fit_callback import is_keras_2, probe_input

if is_keras_2():
    from stallscope.collector.recorder.tf_keras.loader import measure_input, synthetic_like
    from stallscope.collector.recorder.tf_keras.tf_keras_callback import StepLogger
else:
    # The recorder for Keras 3 does not support custom loops.
    from stallscope.collector.recorder.keras3.keras3_callback import (  # type: ignore[assignment]
        StepLogger,
        measure_input,
        synthetic_like,
    )

__all__ = ["StepLogger", "gather_logs", "measure_input", "probe_input", "synthetic_like"]
