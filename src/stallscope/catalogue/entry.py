"""Define an entry of the catalogue: a run's facts, and a summary of its analysis."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallscope.collector.store.layout import SUMMARY, written_whole
from stallscope.collector.store.manifests import Manifest, read_manifest
from stallscope.errors import UnreadableError
from stallscope.words import CAUSES

if TYPE_CHECKING:
    from stallscope.analysis import Analysis
    from stallscope.run import Run

#: The recorded shares of a step: its parts, and the waiting for slow ranks in them.
SHARES = (*CAUSES, "imbalance")
#: Facts that baselines are matched on, and that may differ within a job.
_CIRCUMSTANCES = ("versions", "threads")
_SUMMARY_VERSION = 2
# In this version, shares were those of the ledger's entries, which are other figures.
_WITHOUT_CAUSES = 1
# Errors of reading a file of another program.
_MALFORMED = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)

# Lone surrogates cannot be encoded.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_LARGEST = 2**63


@dataclass(frozen=True)
class AnalysisSummary:
    """A summary of an analysis; None where it is unknown."""

    steps: int | None = None
    epochs: int | None = None
    samples_per_second: float | None = None
    #: The mean over the steady steps.
    step_ms: float | None = None
    #: The kind of the bottleneck and its cause.
    verdict: str | None = None
    cause: str | None = None
    #: Whether there is a fault; None in entries of older versions.
    fault: bool | None = None
    #: Whether it has a fault that a baseline on any data must not have; None in older entries.
    fault_as_baseline: bool | None = None
    #: The fraction of ranks × wall time that went into steps that count.
    goodput: float | None = None
    named_ranks: tuple[int, ...] = ()
    named_hosts: tuple[str, ...] = ()
    #: Fractions of the step time by name of ``SHARES``; empty if stages were not measured.
    shares: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, analysis: Analysis) -> AnalysisSummary:
        """Summarise an analysis."""
        from stallscope.analysis.gains.verdict import fault_as_baseline

        bottleneck = analysis.bottleneck
        entries = (*analysis.by_cause, analysis.entry("imbalance"))
        as_baseline = fault_as_baseline(
            bottleneck, analysis.stragglers, analysis.step_ms, synthetic=False
        )
        return cls(
            steps=analysis.steps,
            epochs=analysis.epochs,
            samples_per_second=number(analysis.samples_per_second),
            step_ms=None if analysis.step is None else number(analysis.step.mean),
            verdict=bottleneck.kind,
            cause=bottleneck.cause,
            fault=bottleneck.fault,
            fault_as_baseline=as_baseline is not None,
            goodput=None if analysis.goodput is None else number(analysis.goodput.fraction),
            named_ranks=tuple(bottleneck.ranks),
            named_hosts=_texts(bottleneck.hosts),
            shares=_finite({entry.name: entry.share for entry in entries if entry is not None}),
        )


@dataclass(frozen=True)
class Entry:
    """A row of the catalogue."""

    #: The name of the run's folder in the store.
    folder: str
    id: str
    name: str
    source: str
    framework: str | None
    model: str | None
    #: The number of ranks that trained; 0 if it is unknown.
    ranks: int
    hosts: tuple[str, ...]
    batch_size: int | None
    synthetic: bool
    status: str
    #: Times in UTC.
    started_at: str | None
    collected_at: str | None
    #: The size of its files.
    bytes: int
    #: The facts that baselines are matched on.
    facts: Mapping[str, Any]
    #: A key that is equal for runs of one job, on any ranks, hosts and data.
    job: str
    summary: AnalysisSummary
    #: The checksum of the run's manifest.
    manifest: str

    @property
    def began(self) -> str | None:
        """The start of the run in UTC; if unknown, the time of its collection."""
        return self.started_at or self.collected_at

    @classmethod
    def of(cls, run: Run, analysis: Analysis | None, folder: Path) -> Entry:
        """Return the entry of a run that was saved in a folder of a store.

        Raises:
            NotFoundError, UnreadableError: if the folder is not a collected run.
        """
        summary = _count_steps(run) if analysis is None else AnalysisSummary.of(analysis)
        return _entry(run, summary, folder, read_manifest(folder))

    @classmethod
    def read(cls, folder: Path) -> Entry:
        """Read the entry of a collected run from its folder, without reading its tables.

        Raises:
            NotFoundError, UnreadableError: if the folder is not a collected run.
        """
        manifest = read_manifest(folder)
        try:
            return _entry(manifest.run(), _read_summary(folder, manifest), folder, manifest)
        except _MALFORMED as error:
            raise UnreadableError(f"{folder}: its manifest is damaged; collect it again") from error

    def write_summary(self, folder: Path) -> None:
        """Write the summary next to the manifest, for rebuilding the catalogue."""
        summary = self.summary
        content = {"stallscope_summary": _SUMMARY_VERSION, "manifest": self.manifest}
        content |= {name: getattr(summary, name) for name in summary.__dataclass_fields__}
        # The draft is in the store's folder, so that it is never listed as a file of the run.
        with written_whole(folder / SUMMARY, folder.parent) as draft:
            draft.write_text(json.dumps(content, indent=1))


def job_facts(run: Run) -> dict[str, Any]:
    """Return the facts that the analysis matches baselines on."""
    from stallscope.analysis.gains.baseline import COMPARED

    return {name: run.fact(name) for name in COMPARED}


def job_of(facts: Mapping[str, Any]) -> str:
    """Return a key that is equal for runs of one job."""
    identity = {name: value for name, value in facts.items() if name not in _CIRCUMSTANCES}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def circumstances(hosts: int, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the circumstances that must be equal to compare runs of one job on as many ranks."""
    return (str(hosts), *(json.dumps(facts.get(name), sort_keys=True) for name in _CIRCUMSTANCES))


def _entry(run: Run, summary: AnalysisSummary, folder: Path, manifest: Manifest) -> Entry:
    return replace(
        entry_of_run(run, folder.name),
        collected_at=moment(manifest.collected_at),
        bytes=whole(manifest.bytes) or 0,
        summary=summary,
        manifest=manifest.sha256,
    )


def entry_of_run(run: Run, folder: str) -> Entry:
    """Return the entry of a run that was neither collected nor analysed.

    Args:
        folder: a unique name of the run.
    """
    facts = job_facts(run)
    try:
        job = job_of(facts)
    except (TypeError, ValueError):
        facts, job = {}, ""  # logs cannot have such facts, only a Run made by hand
    return Entry(
        folder=folder,
        id=text(run.id) or "",
        name=text(run.name) or "",
        source=text(run.source) or "",
        framework=text(facts.get("framework")),
        model=text(facts.get("model")),
        ranks=whole(run.known_size) or 0,
        hosts=_texts(run.hosts),
        batch_size=whole(facts.get("batch_size")),
        synthetic=run.synthetic,
        # Empty where logs cannot show whether the run has ended.
        status=run.status if run.lacks_end or run.status == "completed" else "",
        started_at=moment(run.started_at),
        collected_at=None,
        bytes=sum(log.size for log in run.logs),
        facts=facts,
        job=job,
        summary=AnalysisSummary(),
        manifest="",
    )


def _count_steps(run: Run) -> AnalysisSummary:
    """Summarise a run that was not analysed."""
    import pyarrow.compute as pc

    epochs = run.steps["epoch"]
    return AnalysisSummary(
        steps=pc.count_distinct(run.steps["step"]).as_py(),
        epochs=pc.count_distinct(epochs.filter(pc.greater_equal(epochs, 0))).as_py(),
    )


def _read_summary(folder: Path, manifest: Manifest) -> AnalysisSummary:
    """Read the summary next to the manifest; return an empty one if it is outdated."""
    try:
        content = json.loads((folder / SUMMARY).read_bytes())
        current = content["manifest"] == manifest.sha256
        version = content["stallscope_summary"]
        if not current or version not in (_WITHOUT_CAUSES, _SUMMARY_VERSION):
            return AnalysisSummary()
        summary = summary_of(content)
        return replace(summary, shares={}) if version == _WITHOUT_CAUSES else summary
    except _MALFORMED:
        return AnalysisSummary()


def summary_of(content: Mapping[str, Any]) -> AnalysisSummary:
    """Parse a summary."""
    ranks = (whole(rank) for rank in content["named_ranks"])
    return AnalysisSummary(
        steps=whole(content["steps"]),
        epochs=whole(content["epochs"]),
        samples_per_second=number(content["samples_per_second"]),
        step_ms=number(content["step_ms"]),
        verdict=text(content["verdict"]),
        cause=text(content["cause"]),
        fault=_known_bool(content.get("fault")),
        fault_as_baseline=_known_bool(content.get("fault_as_baseline")),
        goodput=number(content.get("goodput")),
        named_ranks=tuple(rank for rank in ranks if rank is not None),
        named_hosts=_texts(content["named_hosts"]),
        shares=_finite(content["shares"]),
    )


def _known_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _finite(shares: Mapping[str, Any]) -> dict[str, float]:
    known = {name: number(shares.get(name)) for name in SHARES}
    return {name: value for name, value in known.items() if value is not None}


def _texts(items: Iterable[object]) -> tuple[str, ...]:
    return tuple(text(item) or "" for item in items)


# -- Convert facts from logs to values for SQLite and JSON; other types become None ---------------


def text(value: Any) -> str | None:
    return None if value is None else _LONE_SURROGATES.sub("\ufffd", str(value))


def whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_LARGEST <= value < _LARGEST else None


def number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def moment(value: datetime | str | None) -> str | None:
    """Return a time in UTC as text of constant length, so that texts sort like times."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if value is None:
        return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
