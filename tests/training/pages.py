"""Read programs and commands on pages of docs/, and write the tables of what recorders' tests show."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

from training.environments import ROOT
from training.recorder_contract import PROMISES, RecorderContract

TUTORIAL = ROOT / "docs" / "tutorial.md"
RECORDERS = ROOT / "docs" / "recorders"


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    code = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert code, f"{page.name} has no {language}"
    return code


def contracts() -> list[type[RecorderContract]]:
    """Return the contracts of all recorders, in the order of their files."""
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    modules = [
        importlib.import_module(f"training.{file.stem}")
        for file in files
        if "RecorderContract" in file.read_text()
    ]
    classes = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("Test") and issubclass(value, RecorderContract)
    }
    return sorted(classes, key=lambda contract: (contract.recorder, contract.launch))


def ranks_of(framework: str) -> str:
    """Return with how many ranks tests and the scorecard have trained, as in README.md."""
    rows = [contract for contract in contracts() if contract.framework == framework]
    counts = {contract.ranks for contract in rows}
    for name in ("real", "frameworks"):
        runs = json.loads((ROOT / "docs" / "scorecard" / f"{name}.json").read_text())["runs"]
        scored = {contract.scored for contract in rows}
        counts |= {run["ranks"] for run in runs if run["framework"] in scored}
    several = sorted(counts - {1})
    return f"{' and '.join(map(str, several))} ranks" if several else "one process"


def with_ranks(readme: str) -> str:
    """Return README.md with the ranks of each framework in the last column of its table."""
    lines = readme.splitlines()
    start = lines.index("| framework | CPU | GPU | tested on real ranks |") + 2
    end = lines.index("", start)
    rows = [line.strip("| ").split(" | ") for line in lines[start:end]]
    assert {row[0] for row in rows} == {contract.framework for contract in contracts()}
    lines[start:end] = [f"| {' | '.join([*row[:-1], ranks_of(row[0])])} |" for row in rows]
    return "\n".join([*lines, ""])


_HEADING = "## What is tested\n\n"


def with_promises(page: str) -> str:
    """Return docs/recorders/README.md with what the cases of each recorder show."""
    before, heading, after = page.partition(_HEADING)
    rest = after[after.index("\n## ") :]
    return f"{before}{heading}{table_of_promises()}{rest}"


def table_of_promises() -> str:
    """Return a row for each recorder: which launches show a promise, and why others do not."""
    by_recorder: dict[str, list[type[RecorderContract]]] = {}
    for contract in contracts():
        by_recorder.setdefault(contract.recorder, []).append(contract)
    reasons: dict[str, int] = {}
    rows = [["recorder", "launched as", *PROMISES], ["---"] * (2 + len(PROMISES))]
    for recorder, launches in by_recorder.items():
        cells = [_cell(name, launches, reasons) for name in PROMISES]
        rows.append([recorder, ", ".join(launch.launch for launch in launches), *cells])
    return "\n".join(
        [
            "Real trainings show, for each recorder:",
            "",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            *(f"- {promise.name}: {promise.text}." for promise in PROMISES.values()),
            "",
            *(f"- ({number}) {reason}." for reason, number in reasons.items()),
            "",
        ]
    )


def _cell(name: str, launches: list[type[RecorderContract]], reasons: dict[str, int]) -> str:
    """Return the launches that show a promise, and the numbers of the others' reasons."""
    showing = [launch for launch in launches if launch.shows(name)]
    if len(showing) == len(launches):
        return "yes"
    lacking = {launch.cannot[name] for launch in launches if launch not in showing}
    numbers = sorted(reasons.setdefault(reason, len(reasons) + 1) for reason in lacking)
    named = ", ".join(launch.launch for launch in showing) or "no"
    return f"{named} ({', '.join(map(str, numbers))})"


def write_tables() -> None:
    """Write both tables."""
    for page, rewritten in TABLES.items():
        page.write_text(rewritten(page.read_text()))


#: The pages with tables, and what writes these into their text.
TABLES = {
    ROOT / "README.md": with_ranks,
    ROOT / "docs" / "recorders" / "README.md": with_promises,
}
