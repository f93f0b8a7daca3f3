"""Read the step logs of Stallscope's recorder (docs/step-log.md)."""
