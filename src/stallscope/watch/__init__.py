"""Follow runs, and report when conditions start or stop holding: ``stallscope watch``."""
