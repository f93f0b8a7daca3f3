"""Name the packages: setuptools does not find all of them in a source archive, which has no links."""

from setuptools import find_packages, setup

#: The folders at the root that are packages below stallscope.
ROOTS = ("collector", "parsers", "dashboard", "sample_logs")

below = [f"{root}.{name}" for root in ROOTS for name in find_packages(root)]
setup(
    packages=sorted({*find_packages("src"), *(f"stallscope.{name}" for name in (*ROOTS, *below))})
)
