"""Read and analyse runs on a Spark cluster, with the same code as on one machine."""
