"""A job that is recorded, as its page shows it in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect
from support.running_job import RunningJob

from stallscope.dashboard import RunStore
from stallscope.parsers import read

from .browsing import opening, served
from .stores import just_grown

pytestmark = pytest.mark.browser


def test_a_hanging_job_is_shown_until_it_continues(context: BrowserContext, tmp_path: Path) -> None:
    job = RunningJob(tmp_path / "logs")
    just_grown(job.folder)
    store = RunStore(read(str(job.folder)))
    with served(store) as address, opening(context, address) as open_page:
        page = open_page("/run/run-42/live")
        alert = page.get_by_role("alert")
        expect(page.get_by_text("recording", exact=True)).to_be_visible()
        expect(alert).to_have_count(0)
        job.wait_for_rank_1()
        expect(alert).to_contain_text("The job hangs since")
        expect(alert).to_contain_text("waits for its batch, in batches at train.py:12")
        job.go_on()
        expect(alert).to_have_count(0)
