"""Read Spark's event logs, and recognise its other logs."""
