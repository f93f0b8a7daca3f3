"""Record, fetch and store logs."""
