"""Find the run, measure, and store the result."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from stallscope.errors import StallscopeError

from .measuring import measure
from .ranks import Ranks
from .recorded_run import RecordedRun, find_run, folder_of, newest_logs
from .result_file import check_writable, document, save
from .sizes import Gradients, gradients_of

# Their names in step logs.
_FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow", "mxnet": "mxnet"}


class Check(NamedTuple):
    """The result, on the first rank."""

    path: Path
    #: The run with the measured gradients, and its folder, in words; None without a run.
    run: Optional[str]
    content: Dict[str, Any]
    #: Sentences.
    warnings: List[str]


class RefusedError(Exception):
    """The first rank stopped the check; it alone prints the reason."""


class _Plan(NamedTuple):
    """The first rank's plan of the measurement."""

    folder: Path
    run: Optional[RecordedRun]
    gradients: Optional[Gradients]
    bucket_bytes: Optional[int]
    named: Optional[str] = None


def check(
    ranks: Ranks,
    logs: Optional[str],
    out: Optional[str],
    seconds: float,
    env: Mapping[str, str] = os.environ,
) -> Optional[Check]:
    """Measure on all ranks.

    Args:
        ranks: all ranks.
        logs: ``LOGS`` or ``LOGS#RUN_ID`` on the first rank's host; None for the newest run in the
            current folder or two levels below. Without one, or with ``out``, no run is used.
        out: the folder for the result; None for the logs' folder, or the current one without logs.
        seconds: the time for all measurements.
        env: the variables of this process.

    Returns:
        The result on the first rank, None on the others.

    Raises:
        StallscopeError: on the first rank, if the logs cannot be read or the result cannot be written.
        RefusedError: on the others then.
    """
    plan = _shared_plan(ranks, logs, out)
    hosts = ranks.hosts()
    began, begin = time.time_ns(), time.monotonic()
    measured = measure(ranks, hosts, plan.gradients, plan.bucket_bytes, seconds)
    took = time.monotonic() - begin
    # No rank leaves while another still has something to share with it.
    ranks.barrier()
    if ranks.rank:
        return None
    if plan.run is not None and plan.gradients is None:
        measured.left_out.append("the run's gradients: its logs do not say how large they are")
    run_id = None if plan.run is None else plan.run.run_id
    content = document(ranks, hosts, run_id, plan.gradients, measured, began, took, env)
    warnings = [] if plan.run is None else differences(plan.run, ranks, hosts)
    return Check(save(content, plan.folder), plan.named, content, warnings)


def _shared_plan(ranks: Ranks, logs: Optional[str], out: Optional[str]) -> _Plan:
    """Return the first rank's plan on all ranks: only the first one needs to see the logs."""
    plan, failure = None, None
    if ranks.rank == 0:
        try:
            plan = _plan(logs, out)
        except StallscopeError as error:
            failure = error
    shared = ranks.broadcast(None if plan is None else [plan.gradients, plan.bucket_bytes])
    if failure is not None:
        raise failure
    if shared is None:
        raise RefusedError
    if plan is not None:
        return plan
    gradients, bucket_bytes = shared
    return _Plan(Path(), None, None if gradients is None else Gradients(*gradients), bucket_bytes)


def _plan(logs: Optional[str], out: Optional[str]) -> _Plan:
    if logs is None and out is None:
        newest = newest_logs(Path())
        logs = None if newest is None else str(newest)
    run = None if logs is None else find_run(logs)
    default_folder = Path() if logs is None else folder_of(logs)
    folder = (default_folder if out is None else Path(out)).absolute()
    check_writable(folder)
    facts = {} if run is None else run.facts
    bucket = facts.get("bucket_bytes")
    if not isinstance(bucket, int) or bucket <= 0:
        bucket = None
    named = None if run is None else "%s in %s" % (run.run_id, default_folder.absolute())
    return _Plan(folder, run, gradients_of(facts), bucket, named)


def differences(run: RecordedRun, ranks: Ranks, hosts: Sequence[str]) -> List[str]:
    """Describe in sentences how these ranks differ from those of the run."""
    sentences = []
    recorded = run.facts.get("size")
    if isinstance(recorded, int) and recorded != ranks.size:
        sentences.append(
            "this is another network than the run's: %d ranks, and the run had %d"
            % (ranks.size, recorded)
        )
    missing = sorted(set(run.hosts) - set(hosts))
    if missing:
        sentences.append(
            "this is another network than the run's: it also ran on %s" % ", ".join(missing)
        )
    framework = _FRAMEWORKS.get(str(run.facts.get("framework")))
    if framework not in (None, ranks.framework):
        sentences.append(
            "the run trained with %s, and this was measured with %s: pass --framework %s if it is "
            "installed for Horovod" % (framework, ranks.framework, framework)
        )
    return sentences
