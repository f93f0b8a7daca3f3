"""Find slow ranks and hosts, and the stage in which they are slow."""
