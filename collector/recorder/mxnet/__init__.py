"""The recorder for MXNet: Gluon, with Horovod's DistributedTrainer or a single process."""
