"""Time listing a store of many runs, against reading all of their manifests.

    python benchmarks/catalogue.py [--runs 10000] [--rounds 5]

The manifests are as long as real ones, and the runs have no steps; one in ten of a job's runs is a
baseline. All ways read the same store in turns, with its files in the page cache. Figures are
medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from figures import Figure, share_of
from simulator import Job, simulate, write_logs

from stallscope.catalogue.entry import AnalysisSummary, Entry
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.listing import Baselines
from stallscope.catalogue.where import parse_where
from stallscope.collector.store.layout import MANIFEST
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read
from stallscope.words import ENTRIES

_MODELS = [f"model-{number}" for number in range(40)]
_SIZES = (1, 2, 4, 8)
# One in so many runs of a job is on synthetic data.
_RUNS_PER_BASELINE = 10
_BARE = "read all manifests"


def figures(quick: bool) -> list[Figure]:
    runs, rounds = (200, 1) if quick else (10_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        store = _written(Path(folder), runs)
        with Catalogue.open(store):
            pass
        times = _measured(store, rounds)
    bare = times.pop(_BARE)
    return [
        share_of(f"{runs:,} runs: {name}", seconds * 1e3, "ms", "reading all manifests", bare * 1e3)
        for name, seconds in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = _written(Path(folder), options.runs)
        begun = time.perf_counter()
        with Catalogue.open(store):
            built = time.perf_counter() - begun
        with Catalogue.open(store) as catalogue:
            begun = time.perf_counter()
            for entry in catalogue.entries(limit=100):
                catalogue.add(replace(entry, summary=_summary(len(entry.id))))
            added = (time.perf_counter() - begun) / 100
        times = _measured(store, options.rounds)
        size = (store / "catalogue.sqlite").stat().st_size
    bare = times[_BARE]
    print(
        f"{options.runs:,} runs of up to {max(_SIZES)} ranks; the catalogue has {size / 1e6:.1f} MB\n"
    )
    print("| command | ms | of reading all manifests |\n| --- | ---: | ---: |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds * 1e3:,.1f} | {seconds / bare:.3f} |")
    print(f"\nmade from the folders in {built:.1f} s; adding a run takes {added * 1e3:.1f} ms")


def scan(store: Path) -> int:
    """Read all manifests: the minimum without a catalogue."""
    count = 0
    for path in store.iterdir():
        manifest = path / MANIFEST
        if manifest.is_file():
            content = json.loads(manifest.read_text())
            count += bool(content["run_id"] and content["logs"][0]["facts"]["model"])
    return count


def list_all(store: Path, where: str = "", limit: int | None = None) -> int:
    """List the runs as ``stallscope runs`` does, with their baselines."""
    with Catalogue.open(store) as catalogue:
        entries = catalogue.entries(parse_where(where), limit=limit)
        baselines = Baselines(catalogue)
        return sum(baselines.of(entry) is not None for entry in entries)


def find_one(store: Path) -> bool:
    """Find the baseline of one run, as a report does."""
    with Catalogue.open(store, follow=False) as catalogue:
        entry = catalogue.find("run-00001")
        return entry is not None and Baselines(catalogue).of(entry) is not None


def command(store: Path, *words: str) -> None:
    """Run the command in its own process, from start to end."""
    program = [sys.executable, "-m", "stallscope", "runs", str(store), *words]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)


def _measured(store: Path, rounds: int) -> dict[str, float]:
    jobs: dict[str, Callable[[], Any]] = {
        _BARE: lambda: scan(store),
        "list all, with baselines": lambda: list_all(store),
        "list the newest 50": lambda: list_all(store, limit=50),
        "filter by model and ranks": lambda: list_all(store, "model=model-7 ranks>=4"),
        "find one run and its baseline": lambda: find_one(store),
        "stallscope runs STORE": lambda: command(store),
        "stallscope runs STORE --json": lambda: command(store, "--json"),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begun = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(samples) for name, samples in times.items()}


def _written(folder: Path, runs: int) -> Path:
    """Write a store of so many runs."""
    store = folder / "store"
    manifest = _manifest(folder)
    for number in range(runs):
        _write_run(store, manifest, number)
    return store


def _manifest(folder: Path) -> dict[str, Any]:
    """Make a manifest like that of a real collected run."""
    facts = {
        "framework": "tensorflow",
        "versions": {"horovod": "0.28.1", "tensorflow": "2.15.1", "keras": "2.15.0"},
        "settings": {f"HOROVOD_SETTING_{number}": "as it was" for number in range(20)},
    }
    write_logs(simulate(Job(ranks=max(_SIZES), steps=20, facts=facts)), folder / "logs")
    place = save_run(read(str(folder / "logs"))[0], folder / "one")
    content: dict[str, Any] = json.loads((place / MANIFEST).read_text())
    return content


def _write_run(store: Path, manifest: dict[str, Any], number: int) -> None:
    """Write a run's folder with its manifest and its findings."""
    name = f"run-{number:05d}"
    facts = {
        "model": _MODELS[number % len(_MODELS)],
        "batch_size": 32,
        "size": _SIZES[number // len(_MODELS) % len(_SIZES)],
        "synthetic": number // (len(_MODELS) * len(_SIZES)) % _RUNS_PER_BASELINE == 0,
        "run_name": f"nightly {number}",
    }
    logs = [
        {**log, "facts": {**log["facts"], **facts}} for log in manifest["logs"][: facts["size"]]
    ]
    folder = store / name
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "run_id": name, "logs": logs}, indent=1))
    entry = Entry.read(folder)
    replace(entry, summary=_summary(number)).write_summary(folder)


def _summary(number: int) -> AnalysisSummary:
    return AnalysisSummary(
        steps=10_000,
        epochs=10,
        samples_per_second=1000.0 + number,
        step_ms=100.0,
        verdict=ENTRIES[number % len(ENTRIES)],
        shares=dict.fromkeys(ENTRIES, 0.2),
    )


if __name__ == "__main__":
    main()
