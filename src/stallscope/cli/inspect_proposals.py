"""Print the patterns that ``stallscope inspect`` proposes, with the commands that use them."""

from __future__ import annotations

import shlex
from collections import defaultdict
from pathlib import PurePosixPath

from rich.console import Console
from rich.text import Text

from stallscope.formatting.lists import ranges
from stallscope.formatting.numbers import amount, percent
from stallscope.formatting.plain import plain
from stallscope.parsers.inspection.result import Inspection, Proposal

# Characters that have a meaning within double quotes.
_SPECIAL = frozenset('"$`\\!')
_NAMED = 3


def command_for(place: str, seen: Inspection, read_as: str) -> str:
    """Return the command that reads the files of a pattern, quoted for the shell."""
    paths = [file.path for file in seen.files if file.proposal and file.proposal.read_as == read_as]
    is_file = len(seen.files) == 1 and PurePosixPath(place).name == PurePosixPath(paths[0]).name
    path = place if is_file or len(paths) > 1 else f"{place.rstrip('/')}/{paths[0]}"
    return f"stallscope report {_quoted(path)} --read-as {_quoted(read_as)}"


def print_proposals(console: Console, place: str, seen: Inspection) -> None:
    """Print each proposed pattern once, with a preview of the first files."""
    files: dict[str, list[tuple[str, Proposal]]] = defaultdict(list)
    for file in seen.files:
        if file.proposal is not None:
            files[file.proposal.read_as].append((file.path, file.proposal))
    for read_as, proposals in files.items():
        console.print(Text("\nproposed pattern", style="bold"))
        console.print(Text(f"  {read_as.partition(':')[2]}"), soft_wrap=True)
        for path, proposal in proposals[:_NAMED]:
            console.print(Text(f"  would read {plain(path)}: {_reads(proposal)}"))
        if len(proposals) > _NAMED:
            console.print(Text(f"  and {len(proposals) - _NAMED:,} more"))
        for note in dict.fromkeys(note for _, proposal in proposals for note in proposal.notes):
            console.print(Text(f"  • {note}"))
        console.print(Text("  To read the logs with it:"))
        command = Text(f"  {command_for(place, seen, read_as)}", style="bold")
        # A line that is wrapped could not be copied.
        console.print(command, soft_wrap=True)


def _reads(proposal: Proposal) -> str:
    """Describe the matches of a pattern in a file."""
    parts = [f"{proposal.lines:,} lines ({percent(proposal.share)} of their kind)"]
    several = len(proposal.ranks) > 1
    parts.append(f"rank{'s' if several else ''} {ranges(proposal.ranks)}")
    for name, numbers in (("epochs", proposal.epochs), ("steps", proposal.steps)):
        if numbers is not None:
            parts.append(f"{name} {numbers[0]:,}–{numbers[1]:,}")
    if proposal.step_ms is not None:
        half = proposal.step_precision_ms or 0.0
        about = (proposal.step_ms - half, proposal.step_ms + half)
        parts.append(f"{amount(proposal.step_ms, 'ms', about)} per step")
    if proposal.epoch_s is not None:
        parts.append(f"{amount(proposal.epoch_s, 's')} per epoch")
    if proposal.span is not None:
        begin, end = (
            moment.replace("T", " ") for moment in (proposal.span.begin, proposal.span.end)
        )
        parts.append(f"{begin} – {end}")
    return ", ".join(parts)


def _quoted(text: str) -> str:
    """Quote a text for the shell, in double quotes if it contains single ones."""
    if "'" in text and not _SPECIAL & set(text):
        return f'"{text}"'
    return shlex.quote(text)
