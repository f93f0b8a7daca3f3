"""Run all benchmarks, print one table, and write the results; ``make bench`` calls it.

    python benchmarks/run.py [--only NAME…] [--quick] [--keep] [--out FILE] [--history]

A benchmark is a file in this folder with a function ``figures(quick)``, which returns or yields Figures.
Each runs in a separate process and has a limit of time (limits.py).
``--keep`` appends the results to benchmarks/history.jsonl, the source of the README's figures
(readme.py). ``--history`` only draws that file as a page (history_page.py).
The exit status is 1 if a benchmark failed or did not finish.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import history_page
import machine
from figures import VERDICTS, Figure, number
from limits import end_tree, limit_s, unfinished
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
HISTORY = FOLDER / "history.jsonl"
OUT = FOLDER.parent / "build" / "benchmarks.json"
PAGE = OUT.with_name("benchmarks.html")
_DEFINES_FIGURES = re.compile(r"^def figures\(quick: bool\)", re.MULTILINE)


def main() -> None:
    names = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="smaller runs, for a quick look")
    parser.add_argument("--keep", action="store_true", help=f"append a line to {HISTORY.name}")
    parser.add_argument("--out", type=Path, default=OUT, help="the results as JSON")
    parser.add_argument(
        "--history", action="store_true", help=f"only draw {HISTORY.name}, as {PAGE.name}"
    )
    options = parser.parse_args()
    if options.history:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(history_page.page(HISTORY))
        print(f"written to {PAGE}")
        return
    unknown = sorted(set(options.only or ()) - set(names))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(names)}")
    if options.keep and (options.quick or options.only):
        parser.error("--keep is for all benchmarks in full: leave out --quick and --only")
    console = Console(width=None if sys.stdout.isatty() else 140)
    results = run_all(options.only or names, options.quick, console)
    console.print(table(results))
    for result in results:
        if result["failed"]:
            console.print(f"{result['name']}: {result['failed']}", markup=False)
    content = document_of(results, options.quick)
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


def run_all(names: list[str], quick: bool, console: Console) -> list[dict[str, Any]]:
    """Run benchmarks one after the other, and return their results."""
    results = []
    begun = time.monotonic()
    for at, name in enumerate(names, 1):
        with console.status(f"{at} of {len(names)}: {name}"):
            results.append(result_of(name, quick, limit_s(name)))
        took = f"{time.monotonic() - begun:.0f} s"
        console.print(f"{at} of {len(names)}: {name}, {took} so far", markup=False)
    return results


def result_of(name: str, quick: bool, limit: float) -> dict[str, Any]:
    """Run a benchmark; ``failed`` says why figures are missing, and is None if none is."""
    with TemporaryDirectory() as folder:
        out, errors = Path(folder) / "result.json", Path(folder) / "errors"
        words = [sys.executable, str(FOLDER / "one.py"), name, str(out)] + ["--quick"] * quick
        # If it is ended, its temporary files are removed with the folder.
        variables = {**os.environ, "TMPDIR": folder}
        with errors.open("w") as file:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file, env=variables)
            status = _waited(process, limit)
        result = _written_so_far(name, out)
        if status is None:
            result["failed"] = unfinished(limit, [figure["name"] for figure in result["figures"]])
        elif status:
            result["failed"] = errors.read_text().strip()[-2000:] or f"ended with {status}"
    return result


def _waited(process: subprocess.Popen[bytes], limit: float) -> int | None:
    """Return the exit status of a process; None if it was ended at the limit."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also on Ctrl-C.
        if process.poll() is None:
            end_tree(process.pid)
            process.wait()


def _written_so_far(name: str, out: Path) -> dict[str, Any]:
    if not out.exists():
        return {"name": name, "figures": [], "failed": None}
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def table(results: list[dict[str, Any]]) -> Table:
    rows = Table()
    for name in ("figure", "value", "alternative", "its value", "ratio", "target", ""):
        is_text = name in ("figure", "alternative", "target", "")
        rows.add_column(name, justify="left" if is_text else "right")
    for result in results:
        others = result.get("others")
        busy = "" if others is None else f" (other processes used {others:.0%} of the machine)"
        rows.add_section()
        rows.add_row(f"[bold]{result['name']}[/bold]{busy}")
        for content in result["figures"]:
            rows.add_row(*cells(Figure.of(content)))
    return rows


def cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure's row, for the terminal and the README."""
    alternative_value = figure.alternative_value
    return (
        figure.name,
        value_of(figure),
        figure.alternative or "",
        "" if alternative_value is None else f"{number(alternative_value)} {figure.unit}",
        "" if figure.ratio is None else _with_ends(number(figure.ratio), figure.ratio_interval),
        figure.target or "",
        _verdict(figure),
    )


def _verdict(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return VERDICTS[figure.met]


def value_of(figure: Figure) -> str:
    return _with_ends(f"{number(figure.value)} {figure.unit}", figure.interval)


def _with_ends(text: str, ends: tuple[float, float] | None) -> str:
    return text if ends is None else f"{text} ({number(ends[0])} to {number(ends[1])})"


def document_of(results: list[dict[str, Any]], quick: bool) -> dict[str, Any]:
    """Return all results with a description of the machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "quick": quick,
        "machine": machine.facts(),
        "benchmarks": results,
    }


def commit() -> str | None:
    """Return the commit, with a + if there are changes; None outside of a repository."""
    describe = ["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    words = ["git", "-C", str(FOLDER), *describe]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


if __name__ == "__main__":
    main()
