"""Follow runs, and report when a job hangs, which ranks are missing, and when it continues or ends."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stallscope.analysis import Analysis, analyse
from stallscope.collector.store.mirror import temporary_mirrors
from stallscope.conditions.condition import Condition, parse
from stallscope.errors import UsageError
from stallscope.watch.delivery import Delivery, Throttle, WatchEvent
from stallscope.watch.latest import LatestFigures, sent, served
from stallscope.watch.places import Place
from stallscope.watch.receivers import Form, receiver_of
from stallscope.watch.watcher import STOPPED, Watcher, follow

from .main import SUCCESS, add_read_as
from .output import open_one

#: The exit status if a condition has held.
CONDITION_HELD = 1
_LOCALHOST = "127.0.0.1"
_TOKEN = "STALLSCOPE_TOKEN"
# How long notifications may take after the last event.
_LAST_DELIVERY_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a folder with logs, a log, a URL, an MLflow run, a collected run, a store: all its runs; "
        "PLACE#NAME is one of them",
    )
    parser.add_argument(
        "--when",
        metavar="CONDITION",
        action="append",
        default=[],
        help="the condition to watch for, such as 'step_ms.p99>2s' "
        f"(default: {STOPPED}); may be given several times",
    )
    parser.add_argument(
        "--baseline", metavar="RUN", help="another run, for conditions that compare with it"
    )
    parser.add_argument(
        "--notify",
        metavar="URL|COMMAND",
        help="POST each event as JSON to this URL, or run this command with it on standard input",
    )
    parser.add_argument(
        "--notify-as",
        choices=("json", "slack", "teams"),
        help="what to POST (default: json; messages to hooks.slack.com and Teams' webhooks)",
    )
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=int,
        help="serve the runs' latest figures as OpenMetrics on 127.0.0.1:PORT/metrics (0: a free port)",
    )
    parser.add_argument(
        "--metrics-host",
        metavar="HOST",
        help="serve them at this address of this machine, to clients that send the bearer token in "
        f"{_TOKEN} (default: {_LOCALHOST}, without a token)",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="send them to an OpenTelemetry receiver, such as http://localhost:4318/v1/metrics",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="seconds between two looks (default: %(default)g)",
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="go on when all runs have completed, and watch those that come",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="look once at all runs, also at completed ones, and exit",
    )
    parser.add_argument(
        "--format", metavar="NAME", help="json: one object per line; without it, lines of text"
    )
    add_read_as(parser)


def run(options: argparse.Namespace) -> int:
    if options.format not in (None, "json"):
        raise UsageError(f"there is no format {options.format!r}: watch writes json, or text")
    if not 0 < options.interval < math.inf:
        raise UsageError(f"--interval {options.interval:g}: give a number of seconds above 0")
    if options.stay and options.once:
        raise UsageError("--stay and --once: give one of them")
    conditions = _conditions(options.when or [STOPPED])
    with ExitStack() as stack:
        mirrors = stack.enter_context(temporary_mirrors())
        delivery = stack.enter_context(_delivery(options.notify, options.notify_as))
        measured = stack.enter_context(_published(options))
        baseline = None if options.baseline is None else analyse(open_one(options.baseline))
        warned = set(() if baseline is None else baseline.run.place_warnings)
        watchers = [
            Watcher(place, conditions, baseline=baseline, note=_note, measured=measured)
            for place in _places(options, conditions, mirrors, warned)
        ]
        throttle = Throttle()
        for events in _events(watchers, options):
            for event in events:
                _print(event, options.format)
            if delivery is not None:
                told = [event for event in events if event.kind != "steps"]
                for event in throttle.passed(told, time.monotonic()):
                    delivery.add(event)
    return CONDITION_HELD if any(watcher.any_held for watcher in watchers) else SUCCESS


def _events(watchers: Sequence[Watcher], options: argparse.Namespace) -> Iterator[list[WatchEvent]]:
    """Yield the events of the first look at all places, and then those that follow.

    Raises:
        StallscopeError: if a place cannot be read at first.
    """
    events = [event for watcher in watchers for event in watcher.first_look()]
    if not (events or options.stay) and all(watcher.all_completed for watcher in watchers):
        _note("all runs have completed already")
    yield events
    if not options.once:
        yield from follow(watchers, options.interval, stay=options.stay)


def _conditions(texts: Sequence[str]) -> list[Condition]:
    conditions = []
    for text in texts:
        try:
            conditions.append(parse(text))
        except ValueError as error:
            raise UsageError(f"--when: {error}") from None
    return conditions


def _places(
    options: argparse.Namespace, conditions: Sequence[Condition], mirrors: Path, warned: set[str]
) -> list[Place]:
    publishes = options.metrics_port is not None or options.otlp is not None
    whole = publishes or any(condition.needs_analysis for condition in conditions)
    return [
        Place(
            source,
            options.read_as,
            mirrors,
            whole=whole,
            ended_too=options.once,
            waits=options.stay,
            note=_note,
            warned=warned,
        )
        for source in dict.fromkeys(options.runs)
    ]


@contextmanager
def _delivery(notify: str | None, form: Form | None) -> Iterator[Delivery | None]:
    """Start delivering; at the end of the block, wait for the last notifications."""
    if notify is None:
        yield None
        return
    delivery = Delivery(receiver_of(notify, form), _note)
    yield delivery
    delivery.close(_LAST_DELIVERY_SECONDS)


@contextmanager
def _published(options: argparse.Namespace) -> Iterator[Callable[[Analysis, float], None] | None]:
    """Publish figures within the block, if asked to; the value takes analyses."""
    if options.metrics_port is None and options.otlp is None:
        yield None
        return
    figures = LatestFigures()
    with ExitStack() as stack:
        if options.metrics_port is not None:
            host, token = _served_to(options.metrics_host)
            address = stack.enter_context(served(figures, host, options.metrics_port, token))
            _note(f"figures are at {address}")
        refresh = None
        if options.otlp is not None:
            refresh = stack.enter_context(sent(figures, options.otlp, _note))

        def measured(analysis: Analysis, silent_s: float) -> None:
            figures.measured(analysis, silent_s)
            if refresh is not None:
                refresh()

        yield measured


def _served_to(host: str | None) -> tuple[str, str | None]:
    """Return the address to serve figures at, and the token that requests need.

    The token comes from the environment: other users of the machine can read command lines.

    Raises:
        UsageError: if other machines can reach the address and there is no valid token.
    """
    if host is None:
        return _LOCALHOST, None
    # It brings Dash, which other uses of the command do without.
    from stallscope.dashboard.security import checked_token

    token = os.environ.get(_TOKEN)
    if token is None:
        raise UsageError(
            f"with --metrics-host {host}, anyone who reaches this machine could read the figures: set "
            f"{_TOKEN} to a token of 16 to 200 letters, digits, - and _"
        )
    return host, checked_token(token)


def _print(event: WatchEvent, form: str | None) -> None:
    print(event.line() if form is None else json.dumps(event.content()), flush=True)


def _note(what: str) -> None:
    print(f"stallscope: {what}", file=sys.stderr, flush=True)
