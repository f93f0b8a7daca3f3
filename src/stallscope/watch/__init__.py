"""Follow runs, and say when conditions begin to hold and cease: ``stallscope watch``."""
