"""The recorder for Keras 2 on TensorFlow (tf.keras of TensorFlow 2.12 to 2.15)."""
