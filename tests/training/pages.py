"""Read the programs and commands on pages of docs/."""

from __future__ import annotations

import re
from pathlib import Path

from training.environments import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.md"
RECORDERS = ROOT / "docs" / "recorders"


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    code = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert code, f"{page.name} has no {language}"
    return code
