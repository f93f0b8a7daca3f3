"""Run ``python -m stallscope``."""

import sys

from stallscope.cli.main import main

sys.exit(main())
