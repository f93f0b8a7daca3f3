"""Parts of the recorder that every version of Keras uses, on every backend."""
