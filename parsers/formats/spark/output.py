"""Recognise Spark's own logs next to the logs of a job."""

from __future__ import annotations

from typing import ClassVar

from stallscope.collector.sources.spark_layout import is_spark_output

from ...base import CompanionFormat


class SparkOutputFormat(CompanionFormat):
    name: ClassVar[str] = "spark"
    title: ClassVar[str] = "Spark's own log"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return is_spark_output(file_name, head)
