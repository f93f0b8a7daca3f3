"""The recorder for JAX, with Flax, Optax or neither: training loops of the user's own."""
