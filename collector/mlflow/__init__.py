"""Upload step logs to MLflow runs, and read them back.

``process.py`` runs next to training: it and its imports need only Python 3.8, the standard library and
mlflow.
"""
