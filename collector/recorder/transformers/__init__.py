"""The recorder for Hugging Face's Trainer: PyTorch's recorder, driven by the Trainer's callbacks."""
