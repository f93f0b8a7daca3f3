"""Reading and analysing on a cluster: Spark moves what one machine computes."""
