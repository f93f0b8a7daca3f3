"""Read MLflow's record of a run."""
