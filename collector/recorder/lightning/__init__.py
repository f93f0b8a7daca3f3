"""The recorder for Lightning: PyTorch's recorder, driven by the Trainer's callbacks."""
