"""Draw docs/terminal.svg: the first lines of a report as a terminal shows them.

python tools/terminal_picture.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.segment import Segment, Segments

from stallscope.analysis import analyse
from stallscope.opening import open_run
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.run import parts

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "terminal.svg"
RUN, BASELINE = (str(Path("sample_logs", name)) for name in ("slow-input-one-rank", "synthetic"))
#: Verdict, step time and stragglers; the rest of the report is figures.
SECTIONS = 3
_WIDTH = 84


def main() -> None:
    analysis = analyse(open_run(str(ROOT / RUN)), open_run(str(ROOT / BASELINE)))
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(f"$ stallscope report {RUN} --baseline {BASELINE}", highlight=False)
    lines = console.render_lines(terminal_summary(parts(analysis).document("terminal")), pad=False)
    shown = lines[: _end(["".join(part.text for part in line) for line in lines])]
    console.print(Segments([part for line in shown for part in (*line, Segment.line())]), end="")
    # The reader's own fonts: fetching a font would reveal the reader to a server.
    own_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    PICTURE.write_text(
        console.export_svg(title="stallscope report", code_format=own_fonts, unique_id="report")
    )


def _end(lines: list[str]) -> int:
    """Return the line after the last section that is shown."""
    empty = [at for at, line in enumerate(lines) if not line.strip()]
    return empty[SECTIONS - 1]


if __name__ == "__main__":
    main()
