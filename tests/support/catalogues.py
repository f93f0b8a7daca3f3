"""Write simulated runs into stores and their catalogues."""

from __future__ import annotations

from pathlib import Path

from stallscope.analysis import analyse
from stallscope.catalogue.entry import Entry
from stallscope.catalogue.index import Catalogue
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read
from support.step_logs import Job, write_job

JOB = Job(ranks=2, steps=60)
SYNTHETIC = {"synthetic": True}


def saved(store: Path, job: Job = JOB) -> Path:
    """Write a run into a store, unknown to the catalogue."""
    logs = store.parent / "logs" / job.run_id
    write_job(logs, job)
    return save_run(read(str(logs))[0], store)


def collected(store: Path, job: Job = JOB, *, analysed: bool = False) -> Entry:
    """Write a run into a store and its catalogue."""
    folder = saved(store, job)
    run = load_run(folder)
    entry = Entry.of(run, analyse(run) if analysed else None, folder)
    with Catalogue.open(store) as catalogue:
        catalogue.add(entry)
    return entry
