"""The job that this process is part of: its launch, its rank, and facts that all frameworks have.

It reads the launcher's environment, Ray Train, Horovod, the user's framework and the host, and writes
nothing.
"""
