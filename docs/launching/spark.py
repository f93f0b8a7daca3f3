"""Train on two executors of Spark: spark-submit spark.py [LOGS]. On Databricks, in a notebook."""

import sys
from pathlib import Path

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
program = Path(__file__).with_name("train.py")
TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(str(program), *sys.argv[1:])
