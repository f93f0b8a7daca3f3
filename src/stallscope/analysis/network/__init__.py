"""Exposed allreduce, and the tensors in a Horovod Timeline."""
