"""Make a chart's inline SVG a file that stands alone."""

from __future__ import annotations

from stallscope.charts.svg import stylesheet


def svg_file(svg: str) -> str:
    """Return the SVG with its stylesheet and a background."""
    begin = svg.index(">") + 1
    paper = '<rect width="100%" height="100%" style="fill:var(--paper)"/>'
    style = f"<style>{stylesheet()}.picture{{font-family:system-ui,sans-serif}}</style>{paper}"
    return svg[:begin] + style + svg[begin:] + "\n"
