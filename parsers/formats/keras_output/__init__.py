"""Read the output of Keras while it fits."""
