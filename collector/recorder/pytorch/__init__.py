"""The recorder for PyTorch: Horovod's optimizer, DistributedDataParallel, or one process."""
