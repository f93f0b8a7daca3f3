"""Which ranks and hosts are slow, and in which stage."""
