"""The recorder for Lightning: PyTorch's, told of turns and batches by the Trainer."""
