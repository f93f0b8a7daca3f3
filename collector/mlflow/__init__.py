"""MLflow: step logs as a run's artifacts, and what was found on the run's own page.

``process.py`` runs beside training: it and what it imports need nothing but the standard library and
mlflow, and Python 3.8.
"""
