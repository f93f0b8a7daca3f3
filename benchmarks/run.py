"""Run all benchmarks, print one table, and write the results; ``make bench`` calls it.

    python benchmarks/run.py [--only NAME…] [--quick] [--keep] [--out FILE]

A benchmark is a file in this folder with a function ``figures(quick)``, which returns a list of
Figure; each runs in its own process. ``--keep`` appends the results to benchmarks/history.jsonl,
the source of the README's figures (readme.py).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import machine
from figures import Figure, number
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
HISTORY = FOLDER / "history.jsonl"
OUT = FOLDER.parent / "build" / "benchmarks.json"
_DEFINES_FIGURES = re.compile(r"^def figures\(quick: bool\)", re.MULTILINE)


def main() -> None:
    names = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="smaller runs, for a quick look")
    parser.add_argument("--keep", action="store_true", help=f"append a line to {HISTORY.name}")
    parser.add_argument("--out", type=Path, default=OUT, help="the results as JSON")
    options = parser.parse_args()
    unknown = sorted(set(options.only or ()) - set(names))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(names)}")
    if options.keep and (options.quick or options.only):
        parser.error("--keep is for all benchmarks in full: leave out --quick and --only")
    console = Console(width=None if sys.stdout.isatty() else 140)
    results = ran(options.only or names, options.quick, console)
    console.print(table(results))
    for result in results:
        if result["failed"]:
            console.print(f"{result['name']}: {result['failed']}", markup=False)
    content = written(results, options.quick)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=1) + "\n")
    console.print(f"written to {options.out}", markup=False)
    failed = any(result["failed"] for result in results)
    if options.keep and failed:
        sys.exit("not kept: a benchmark failed")
    if options.keep:
        with HISTORY.open("a") as file:
            file.write(json.dumps(content) + "\n")
    sys.exit(1 if failed else 0)


def benchmarks() -> list[str]:
    """Return the names of all benchmarks."""
    files = sorted(FOLDER.glob("*.py"))
    return [path.stem for path in files if _DEFINES_FIGURES.search(path.read_text())]


def ran(names: list[str], quick: bool, console: Console) -> list[dict[str, Any]]:
    results = []
    begun = time.monotonic()
    for at, name in enumerate(names, 1):
        with TemporaryDirectory() as folder:
            out = Path(folder) / "result.json"
            words = [sys.executable, str(FOLDER / "one.py"), name, str(out)]
            with console.status(f"{at} of {len(names)}: {name}"):
                done = subprocess.run(
                    words + ["--quick"] * quick, capture_output=True, text=True, check=False
                )
            if done.returncode:
                failed = done.stderr.strip()[-2000:] or f"ended with {done.returncode}"
                results.append({"name": name, "figures": [], "failed": failed})
            else:
                results.append(json.loads(out.read_text()))
        took = f"{time.monotonic() - begun:.0f} s"
        console.print(f"{at} of {len(names)}: {name}, {took} so far", markup=False)
    return results


def table(results: list[dict[str, Any]]) -> Table:
    rows = Table()
    for name in ("figure", "value", "alternative", "its value", "ratio", "target", ""):
        is_text = name in ("figure", "alternative", "target", "")
        rows.add_column(name, justify="left" if is_text else "right")
    for result in results:
        others = result.get("others")
        busy = "" if others is None else f" (others had {others:.0%} of the machine)"
        rows.add_section()
        rows.add_row(f"[bold]{result['name']}[/bold]{busy}")
        for content in result["figures"]:
            rows.add_row(*cells(Figure.of(content)))
    return rows


def cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure's row, for the terminal and the README."""
    other = figure.alternative_value
    return (
        figure.name,
        value_of(figure),
        figure.alternative or "",
        "" if other is None else f"{number(other)} {figure.unit}",
        "" if figure.ratio is None else number(figure.ratio),
        figure.target or "",
        _verdict(figure),
    )


def _verdict(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return {None: "too noisy to tell", True: "met", False: "missed"}[figure.met]


def value_of(figure: Figure) -> str:
    value = f"{number(figure.value)} {figure.unit}"
    if figure.interval is None:
        return value
    low, high = figure.interval
    return f"{value} ({number(low)} to {number(high)})"


def written(results: list[dict[str, Any]], quick: bool) -> dict[str, Any]:
    """Return all results with a description of the machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "quick": quick,
        "machine": machine.facts(),
        "benchmarks": results,
    }


def commit() -> str | None:
    """Return the commit, with a + where there are changes; None outside of a repository."""
    describe = ["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    words = ["git", "-C", str(FOLDER), *describe]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


if __name__ == "__main__":
    main()
