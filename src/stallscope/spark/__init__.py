"""Read and analyse runs on a Spark cluster, with the code of one machine."""
