"""The recorder for Keras 3, on TensorFlow, torch and JAX."""
