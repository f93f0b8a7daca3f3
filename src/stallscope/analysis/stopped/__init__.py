"""Whether a job stands still, and which ranks the others wait for."""
