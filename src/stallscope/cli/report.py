"""Show where a run's time goes, which ranks cause it, and the gain of fixing it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from stallscope.batch.plan import baseline_units, named_baselines
from stallscope.batch.run_batch import Batch
from stallscope.batch.state import lock_folder
from stallscope.batch.units import Unit, units_of
from stallscope.batch.worker import KnownRun, ReportResult
from stallscope.batch.workers import Workers
from stallscope.collector.run_names import RunAddress
from stallscope.collector.store.mirror import temporary_mirrors
from stallscope.errors import UsageError
from stallscope.opening import local_address, place_warnings, store_of
from stallscope.reports import report_formats

from . import mlflow_runs, output, report_settings
from .engine_option import add_engine, add_scratch, reading_engine
from .main import SUCCESS, print_failures, print_warnings
from .progress_bars import show_progress
from .report_settings import jobs_of, parse_since, print_list, settings_of

if TYPE_CHECKING:
    from stallscope.conditions.condition import Outcome

#: The exit status if a condition of ``--fail-if`` held.
CONDITION_HELD = 1
#: The exit status if none held, and a figure is missing: a gate does not pass without its data.
CONDITION_UNDECIDED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a folder with logs, a log, a URL, an MLflow run, a collected run, a store: all its runs; "
        "PLACE#NAME is one of them",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        action="append",
        default=[],
        help="the same job on synthetic data, to compare with; give it twice to add a run on one rank",
    )
    parser.add_argument(
        "--network-bandwidth",
        metavar="GB/S",
        help="bus bandwidth of the network, as nccl-tests reports it",
    )
    parser.add_argument(
        "--what-if",
        metavar="QUESTION",
        action="append",
        default=[],
        help="bandwidth:4 (four times the bandwidth) or ranks:64; may be given several times",
    )
    parser.add_argument(
        "--fail-if",
        metavar="CONDITION",
        action="append",
        default=[],
        help="exit with status 1 if this holds, such as 'input.excess>20%%'; may be given several times",
    )
    parser.add_argument(
        "--since",
        metavar="WHEN",
        help="only runs that started since: 2026-11-01, or 7d, or 12h ago",
    )
    parser.add_argument(
        "--jobs", metavar="N", help="parallel processes (default: the number of CPU cores)"
    )
    add_engine(parser)
    add_scratch(parser)
    parser.add_argument(
        "--anonymous", action="store_true", help="leave out names of hosts, users, files and code"
    )
    mlflow_runs.add_arguments(parser)
    report_settings.add_arguments(parser)
    output.add_arguments(parser, report_formats.BUILT_IN)


def run(options: argparse.Namespace) -> int:
    report_settings.check(options)
    mlflow_runs.check_target(options.to)
    since = None if options.since is None else parse_since(options.since, datetime.now(UTC))
    jobs_of(options, 1)
    scratch_folder = tempfile.TemporaryDirectory(prefix="stallscope-")
    with scratch_folder as scratch, temporary_mirrors() as mirrors:
        settings = settings_of(options, Path(scratch))
        addresses = [local_address(source, mirrors) for source in options.runs]
        named = [local_address(source, mirrors) for source in options.baseline]
        addresses += map(RunAddress, mlflow_runs.picked_runs(options))
        if not addresses:
            raise UsageError(
                "name a RUN to report on, or an --experiment; see stallscope report --help"
            )
        warnings: list[str] = []
        baselines = baseline_units(named, warnings.append)
        places = [units_of(address, warnings.append) for address in addresses]
        print_warnings(list(dict.fromkeys(warnings)))
        units = _units(places)
        mlflow_runs.check_count(options.to, len(units))
        settings = settings.of(len(units))
        processes = jobs_of(options, len(units))
        reading = reading_engine(options.engine, options.scratch)
        with ExitStack() as stack:
            if settings.resumable:
                stack.enter_context(lock_folder(settings.out))
            workers = stack.enter_context(
                Workers(settings, processes, stack.enter_context(reading))
            )
            batch = Batch(settings, workers, show_progress, options.force)
            stores = {store for store in map(store_of, addresses) if store is not None}
            return _reported(
                batch, places, baselines, sorted(stores), since, options, stack, warnings
            )


def _reported(
    batch: Batch,
    places: Sequence[Sequence[Unit]],
    baselines: Sequence[Unit],
    stores: Sequence[Path],
    since: datetime | None,
    options: argparse.Namespace,
    stack: ExitStack,
    warnings: Sequence[str],
) -> int:
    """Report on all runs of the places; return the exit status.

    Args:
        places: what to read, by RUN.
        stack: releases the lock of the reports' folder.
        warnings: those that were printed.
    """
    try:
        named = named_baselines(batch.identify_each(baselines), baselines)
        known = batch.identify(_units(places))
        mlflow_runs.check_count(options.to, len(known))
        opened = [run.run for run in known]
        new = place_warnings([*opened, *(baseline.run for baseline in named)])
        # The report of a single run shows its own itself.
        shown = {*warnings, *place_warnings(opened if len(opened) == 1 else ())}
        print_warnings([warning for warning in new if warning not in shown])
        if len(known) > 1 and not batch.settings.many:
            # The only place has several runs.
            batch.settings = batch.settings.of(len(known))
            if batch.settings.resumable:
                stack.enter_context(lock_folder(batch.settings.out))
                batch.load_state()
        done = batch.report(known, named, stores, since)
    except KeyboardInterrupt:
        print(f"\nstallscope: {_interruption(batch)}", file=sys.stderr)
        raise
    if done or batch.settings.resumable or not batch.failed:
        _show(batch, done, options.runs, _has_several(places, known))
    if options.github_summary:
        report_settings.append(_markdown(batch, done))
    _print_notes(batch, done, options)
    conditions = _print_conditions(batch.checked(done))
    return print_failures(message for _, message in batch.failed) or conditions


def _units(places: Sequence[Sequence[Unit]]) -> list[Unit]:
    """Return each place to read once."""
    return list({unit.key: unit for units in places for unit in units}.values())


def _has_several(places: Sequence[Sequence[Unit]], known: Sequence[KnownRun]) -> bool:
    """Whether a RUN has several runs."""
    by_place = Counter(run.source for run in known)
    return any(sum(by_place[unit] for unit in units) > 1 for units in places)


def _show(batch: Batch, done: Sequence[ReportResult], places: Sequence[str], listed: bool) -> None:
    """Show the reports, or one line for each of several runs if ``listed``."""
    settings = batch.settings
    if settings.output == "terminal" and listed and len(done) > 1:
        print_list([report.line for report in done], places[0] if len(places) == 1 else "PLACE")
    elif settings.output == "terminal":
        console = Console(emoji=False)
        for report in done:
            console.print(report.summary)
    elif settings.output == "json":
        output.print_array([report.document for report in done if report.document is not None])
    else:
        if batch.already:
            print(
                f"stallscope: {batch.already} of {batch.planned} already exist; --force writes them "
                "again",
                file=sys.stderr,
            )
        for path in [path for report in done for path in report.paths] + batch.index():
            print(path)


def _markdown(batch: Batch, done: Sequence[ReportResult]) -> str:
    if batch.settings.many:
        return batch.markdown_index([report.line for report in done])
    return "".join(report.markdown for report in done)


def _print_notes(batch: Batch, done: Sequence[ReportResult], options: argparse.Namespace) -> None:
    """Print notes on the runs that were left out, and on the reports."""
    if batch.undated:
        left_out = "1 run is" if batch.undated == 1 else f"{batch.undated} runs are"
        print(
            f"stallscope: --since {options.since}: {left_out} left out, because their start is unknown",
            file=sys.stderr,
        )
    if options.since is not None and not batch.planned:
        print(f"stallscope: --since {options.since}: no run has started since", file=sys.stderr)
    for report in done:
        if report.message:
            print(report.message, file=sys.stderr)


def _print_conditions(checked: Sequence[tuple[str, Outcome]]) -> int:
    """Print the conditions that held or are undecided, by run; return the exit status."""
    for name, outcome in checked:
        if outcome.held is not False:
            state = "held" if outcome.held else "is undecided"
            print(f"stallscope: --fail-if {state} in {name}: {outcome.why}", file=sys.stderr)
    outcomes = {outcome.held for _, outcome in checked}
    if True in outcomes:
        return CONDITION_HELD
    return CONDITION_UNDECIDED if None in outcomes else SUCCESS


def _interruption(batch: Batch) -> str:
    if not batch.settings.resumable:
        return "stopped; nothing was reported"
    if not batch.planned:
        return "stopped before the first report; run the same command to continue"
    return (
        f"stopped: {batch.written} of {batch.planned} are written; run the same command to continue"
    )
