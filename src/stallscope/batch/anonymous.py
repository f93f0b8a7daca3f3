"""Remove what identifies people, machines and code from runs, for reports that others may read.

Names of runs, models and optimizers stay, without the names of hosts and users in them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from stallscope.collector.recorder.job.job_settings import is_recorded
from stallscope.formatting.plain import LEFT_OUT, without_paths
from stallscope.parsers.runs.reading import NO_LOG
from stallscope.run import Event, Log, MeasuredInput, NetworkCheck, PairRounds, Problem, Run, Series

# Settings' values that identify nothing: numbers, switches, log levels, libraries.
_HARMLESS = re.compile(
    r"-?\d+(?:\.\d+)?|true|false|on|off|yes|no|none|trace|debug|info|warn(?:ing)?|error|fatal|version"
    r"|detail|ring|tree|gloo|mpi|nccl|ccl|cpu|gpu|cuda|dynamic|lo",
    re.IGNORECASE,
)
# Shorter names may be ordinary words; they are only replaced between spaces or quotes.
_SHORTEST = 4
# Names that cannot be ordinary words are replaced within longer names, too: train_gpu-17.log.
_DISTINCTIVE = re.compile(r"(?=.*[\d.-]).{4,}")
_USER = "user-"
_HOME = re.compile(
    r"(?:^|[/\\])(?:home|[Uu]sers)[/\\]+([\w.@+-]{2,})|(?:^|[\s'\"=:])~([\w.+-]{2,})(?=/)"
)
# The user and the host in bob@node-7.
_LOGIN = re.compile(r"(?<![\w.+-])([A-Za-z_][\w.+-]*)@([A-Za-z][\w.-]*)")
# Facts whose words are no names of users and hosts: they stay the same for runs of one job.
_PUBLIC_FACTS = ("framework", "model", "optimizer")
# Accounts of images and services, and folders: no person has these names.
_NO_USERS = {"data", "ec2-user", "hadoop", "root", "runner", "shared", "spark", "ubuntu", "user"}
# MLflow's run ids, and commits.
_ID = re.compile(r"\b(?:[0-9a-f]{40}|[0-9a-f]{32})\b")
# These names tell ranks and streams only; of other files' names, usual endings stay.
_HARMLESS_FILE = re.compile(
    r"rank-\d+(?:\.\d+){2}\.steps\.csv(?:\.(?:gz|zst|bz2|xz))?|std(?:out|err)(?:\.(?:log|txt))?"
)
_ENDING = re.compile(r"(?:\.(?:steps|input|netcheck|mlflow))?\.(?:csv|err|gz|json|log|out|txt)$")
_COUNT_OF_FILES = re.compile(r"[\d,]+ files")
# What MLflow has of a run instead of logs.
_LISTED = re.compile(r"\b(metrics?|params?) \([^)]*\)")
_TIMED_METRIC = re.compile(r"(?<= of the metric )[^;]+")
# Public packages, whose callbacks and functions stay; the analysis recognises collectives by them.
_PACKAGES = re.compile(
    r"accelerate|deepspeed|horovod|jax|keras|lightning|mxnet|petastorm|pyspark|pytorch_lightning|ray"
    r"|stallscope|tensorflow|tf_keras|torch|torchvision|transformers"
)
_PACKAGES_FILE = re.compile(r"/[\w.]*-packages/(\w+).*")
_PYTHONS_FILE = re.compile(r"/lib/python3[\w.]*/.*")
_METRICS = re.compile(
    r"(?:val_)?(?:acc|accuracy|auc|loss|lr|learning_rate|mae|mse|precision|recall)"
)
# Events that end with an error message, and the one that ends with tensors' names.
_FAILURES = frozenset({"executor_lost", "stage_failed", "task_failed"})
_STALL = "stall"
# Messages about places that were not read: quoted names, and names of files.
_NAMES = re.compile(r"\"[^\"]*\"|\b[\w-]+(?:\.[A-Za-z_][\w-]*)+\b")


def anonymous(run: Run) -> Run:
    """Replace names of hosts, users, files, tensors, callbacks and functions; remove paths.

    The run's analysis stays the same.
    """
    return _Anonymiser(run).run()


def anonymous_failure(message: str, place: str, number: int) -> str:
    """Return the message about a place that could not be read, without names."""
    text = _LOGIN.sub(LEFT_OUT, without_paths(message.replace(place, f"run {number}")))
    return _ID.sub(LEFT_OUT, _NAMES.sub(LEFT_OUT, _LISTED.sub(r"\1", text)))


class _Aliases:
    """Numbered aliases of names of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._aliases: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self._aliases.setdefault(name, f"{self._kind}-{len(self._aliases) + 1}")


class _Anonymiser:
    """Replaces the names of one run, the same name by the same alias everywhere."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._callbacks, self._functions = _Aliases("callback"), _Aliases("function")
        self._scripts = _Aliases("script")
        self._metrics, self._tensors = _Aliases("metric"), _Aliases("tensor")
        self._files = _aliases_of_files(run)
        self._known = _known_names(run)
        self._known |= {name: alias for name, alias in self._files.items() if "." in name}
        self._names = _pattern_of(self._known)
        self._name = self.text(str(run.fact("run_name") or _anonymous_id(run.id)))
        self._known[run.source] = self._name
        self._names = _pattern_of(self._known)

    def run(self) -> Run:
        run = self._run
        return replace(
            run,
            id=self.text(_anonymous_id(run.id)),
            source=self._name,
            logs=tuple(map(self._log, run.logs)),
            problems=tuple(map(self._problem, run.problems)),
            place_warnings=(),
            input_times=tuple(map(self._measured_input, run.input_times)),
            network_checks=tuple(map(self._network_check, run.network_checks)),
            events=tuple(map(self._event, run.events)),
            series=tuple(map(self._series, run.series)),
        )

    def text(self, text: str) -> str:
        """Remove all names that are recognised in a text."""
        named = without_paths(self._names.sub(lambda match: self._known[match[0]], text))
        return _ID.sub(lambda match: _anonymous_id(match[0]), named)

    def _id(self, run_id: Any) -> str | None:
        return None if run_id is None else self.text(_anonymous_id(str(run_id)))

    def _file(self, where: str) -> str:
        if where == self._run.source:
            return self._name
        return where if _COUNT_OF_FILES.fullmatch(where) else self._files[PurePath(where).name]

    def _log(self, log: Log) -> Log:
        facts = {name: self._fact(name, value) for name, value in log.facts.items()}
        return replace(log, path=self._file(log.path), facts=facts)

    def _fact(self, name: str, value: Any) -> Any:
        cleaners: dict[str, Callable[[Any], Any]] = {
            "callbacks": lambda callbacks: _each(callbacks, self._callback),
            "host_syncs": self._stacks,
            "in_flight": self._stacks,
            "launch": _hashed,
            "run_id": self._id,
            "settings": self._settings,
            "sparse_gradients": self._gathered,
            "weights": lambda weights: self._renamed(weights, "of", self._tensors.of),
        }
        return None if value is None else cleaners.get(name, self._value)(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(_TIMED_METRIC.sub(lambda metric: self._metric(metric[0]), value))
        if isinstance(value, Mapping):
            return {name: self._value(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(part) for part in value]
        return value

    def _renamed(self, fact: Any, name: str, alias: Callable[[str], str]) -> Any:
        """Replace a name in a fact."""
        cleaned = self._value(fact)
        if isinstance(cleaned, dict) and isinstance(fact.get(name), str):
            cleaned[name] = alias(fact[name])
        return cleaned

    def _callback(self, callback: Any) -> Any:
        named = self._renamed(callback, "name", self._callback_name)
        return self._renamed(named, "monitor", self._metric)

    def _callback_name(self, name: str) -> str:
        return name if _PACKAGES.fullmatch(name.partition(".")[0]) else self._callbacks.of(name)

    def _metric(self, name: str) -> str:
        return name if _METRICS.fullmatch(name) else self._metrics.of(name)

    def _gathered(self, fact: Any) -> Any:
        cleaned = self._value(fact)
        if isinstance(fact, Mapping) and "largest" in fact:
            cleaned["largest"] = _each(fact["largest"], self._gradient)
        return cleaned

    def _gradient(self, gradient: Any) -> Any:
        return self._renamed(gradient, "name", self._tensors.of)

    def _stacks(self, value: Any) -> Any:
        """Replace functions of the user's code in stacks; those of libraries stay."""
        if isinstance(value, Mapping):
            return {name: self._stacks(part) for name, part in value.items()}
        if not isinstance(value, list):
            return self._value(value)
        if [type(part) for part in value] != [str, int, str]:
            return [self._stacks(part) for part in value]
        return self._frame(*value)

    def _frame(self, file: str, line: int, function: str) -> list[str | int]:
        path = file.replace("\\", "/")
        packages = _PACKAGES_FILE.search(path)
        public = _PYTHONS_FILE.search(path) if packages is None else packages
        if public is not None and (packages is None or _PACKAGES.fullmatch(packages[1])):
            return [LEFT_OUT + public[0], line, function]
        folder = "" if public is None else f"{LEFT_OUT}/site-packages/"
        ending = ".py" if path.endswith(".py") else ""
        return [f"{folder}{self._scripts.of(file)}{ending}", line, self._functions.of(function)]

    def _settings(self, settings: Any) -> Any:
        if not isinstance(settings, Mapping):
            return self._value(settings)
        return {
            self.text(str(name)): value if _HARMLESS.fullmatch(str(value)) else LEFT_OUT
            for name, value in settings.items()
            if is_recorded(str(name))
        }

    def _problem(self, problem: Problem) -> Problem:
        # What follows are names of files.
        what = NO_LOG if problem.what.startswith(NO_LOG) else _LISTED.sub(r"\1", problem.what)
        return Problem(self._file(problem.where), self.text(what))

    def _event(self, event: Event) -> Event:
        what, _, rest = event.what.partition(": ")
        if event.kind == _STALL and rest:
            what = f"{what}: {', '.join(map(self._tensors.of, rest.split(', ')))}"
        elif event.kind not in _FAILURES:
            what = event.what
        return replace(
            event,
            where=self._file(event.where),
            what=self.text(what),
            hosts=tuple(map(self.text, event.hosts)),
        )

    def _series(self, series: Series) -> Series:
        node = None if series.node is None else self.text(series.node)
        where = self._file(series.where)
        return replace(series, where=where, node=node, name=self.text(series.name))

    def _measured_input(self, measured: MeasuredInput) -> MeasuredInput:
        numbers = _Aliases("stage")
        return replace(
            measured,
            path=self._file(measured.path),
            host=self.text(measured.host),
            run_id=self._id(measured.run_id),
            launch=None if measured.launch is None else _hashed(measured.launch),
            kind=self.text(measured.kind),
            error=None if measured.error is None else LEFT_OUT,
            stages=tuple(replace(stage, name=numbers.of(stage.name)) for stage in measured.stages),
            no_stages=None if measured.no_stages is None else self.text(measured.no_stages),
        )

    def _network_check(self, check: NetworkCheck) -> NetworkCheck:
        return replace(
            check,
            path=self._file(check.path),
            run_id=self._id(check.run_id),
            hosts=tuple(map(self.text, check.hosts)),
            settings=self._settings(check.settings),
            pairs=tuple(map(self._pair, check.pairs)),
            left_out=tuple(map(self.text, check.left_out)),
        )

    def _pair(self, pair: PairRounds) -> PairRounds:
        first, second = map(self.text, pair.hosts)
        return replace(pair, hosts=(first, second))


def _each(fact: Any, clean: Callable[[Any], Any]) -> Any:
    return list(map(clean, fact)) if isinstance(fact, list) else clean(fact)


def _known_names(run: Run) -> dict[str, str]:
    """Return aliases of the names of hosts, domains, addresses and users that the run mentions."""
    hosts = _aliases_of_hosts(run)
    known = dict(hosts)
    for host, alias in hosts.items():
        # The first part of a host name also identifies it; the first part of an address is a number.
        first, _, domain = host.partition(".")
        if not first.isdecimal():
            known.setdefault(first, alias)
            if "." in domain:
                known.setdefault(domain, "domain")
    known |= {address: f"address-{at}" for at, address in enumerate(_addresses(run), start=1)}
    users = {user for text in _texts_of(run) for groups in _HOME.findall(text) for user in groups}
    users |= {user.partition("@")[0] for user in users}
    users |= {user for user, _ in _logins(run)}
    for at, user in enumerate(sorted(users - {""} - _NO_USERS - known.keys()), start=1):
        known[user] = f"{_USER}{at}"
    return known


def _logins(run: Run) -> set[tuple[str, str]]:
    """Return the users and hosts of all logins that a run mentions."""
    public = {
        word for name in _PUBLIC_FACTS for word in re.findall(r"[\w.+-]+", str(run.fact(name)))
    }
    logins = {login for text in _texts_of(run) for login in _LOGIN.findall(text)}
    return {login for login in logins if public.isdisjoint(login)}


def _texts_of(run: Run) -> Iterator[str]:
    """Yield all texts of a run in which paths and logins may be."""
    yield run.id
    yield run.source
    yield from _places_of(run)
    for log in run.logs:
        yield from _texts_in(log.facts)
    yield from (event.what for event in run.events)
    yield from (problem.what for problem in run.problems)


def _places_of(run: Run) -> Iterator[str]:
    """Yield the places of all files that a run mentions."""
    yield from (log.path for log in run.logs)
    yield from (problem.where for problem in run.problems)
    yield from (event.where for event in run.events)
    yield from (series.where for series in run.series)
    yield from (measured.path for measured in run.input_times)
    yield from (check.path for check in run.network_checks)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts_in(part)


def _aliases_of_files(run: Run) -> dict[str, str]:
    """Return a name for each file that the run mentions: its own for step logs, otherwise an alias."""
    names = sorted({PurePath(place).name for place in _places_of(run)})
    numbers = _Aliases("file")
    return {
        name: name if not name or _HARMLESS_FILE.fullmatch(name) else _file_alias(name, numbers)
        for name in names
    }


def _file_alias(name: str, numbers: _Aliases) -> str:
    ending = _ENDING.search(name)
    return numbers.of(name) + (ending[0] if ending else "")


def _anonymous_id(run_id: str) -> str:
    """Return an alias of an id that a server knows; other ids stay."""
    return f"run-{_hashed(run_id)}" if _ID.fullmatch(run_id) else run_id


def _hashed(text: str) -> str:
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _aliases_of_hosts(run: Run) -> dict[str, str]:
    """Return aliases that sort like the host names, because the analysis depends on their order.

    Hosts that only events, series or logins mention get aliases, too.
    """
    width = len(str(len(run.hosts)))
    run_hosts = {host: f"host-{number:0{width}d}" for number, host in enumerate(run.hosts, start=1)}
    short = {host.partition(".")[0]: alias for host, alias in run_hosts.items()}
    mentioned = {host for event in run.events for host in event.hosts}
    mentioned |= {series.node for series in run.series if series.node and series.rank is None}
    # With a domain, it may be an address of mail, which is removed as a whole.
    mentioned |= {host for _, host in _logins(run) if "." not in host}
    aliases = {
        host: short[first] for host in mentioned if (first := host.partition(".")[0]) in short
    }
    others = sorted(mentioned - aliases.keys())
    return {
        **{host: f"other-host-{number}" for number, host in enumerate(others, start=1)},
        **aliases,
        **run_hosts,
    }


def _addresses(run: Run) -> list[str]:
    """Return the addresses of connections between hosts, which identify links."""
    lists = [log.facts.get("connections") for log in run.logs]
    rows = [row for rows in lists if isinstance(rows, list) for row in rows]
    ends = {row.get(end) for row in rows if isinstance(row, Mapping) for end in ("local", "peer")}
    return sorted(end for end in ends if isinstance(end, str) and end)


def _pattern_of(known: Mapping[str, str]) -> re.Pattern[str]:
    names = [name for name in sorted(known, key=len, reverse=True) if name]
    # Without a name, a pattern that matches nothing.
    return re.compile("|".join(_pattern(name, known[name]) for name in names) or r"(?!)")


def _pattern(name: str, alias: str) -> str:
    if _DISTINCTIVE.fullmatch(name) or alias.startswith(_USER):
        return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
    if len(name) >= _SHORTEST:
        return rf"(?<![\w.-]){re.escape(name)}(?![\w-])"
    return rf"(?<![^\s'\"(@]){re.escape(name)}(?![^\s'\",.;:)])"
