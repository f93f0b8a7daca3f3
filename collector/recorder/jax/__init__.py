"""The recorder for JAX, with Flax, Optax or neither: custom training loops."""
