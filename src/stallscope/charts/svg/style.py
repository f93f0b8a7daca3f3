"""The style sheet of all charts: colours as custom properties, for light and dark pages."""

from __future__ import annotations

from ..palette import COLOURS, HEAT, SHADES, STATUS, Colour

_DARK_INK, _LIGHT_INK = "#14171c", "#ffffff"
# Colours on which light text stands out more than dark text, on light and on dark pages.
_DEEP = {"compute", "steps", "validation", "negotiation", "scale"}
_DEEP_AT_NIGHT = {
    "validation",
    "latency",
    "fusion",
    "wait",
    "waiting_or_allreduce",
    "startup",
    "warmup",
    "input_waiting",
    "compute_waiting",
    "other_waiting",
}

_RULES = """\
.chart{display:block;width:100%;height:auto;font-family:inherit}
.chart text{font-size:13px;fill:var(--ink)}
.chart .tick{font-size:12px;fill:var(--muted);font-variant-numeric:tabular-nums}
.chart .strong{font-weight:650}
.chart .grid{stroke:var(--line);stroke-width:1}
.chart .zero{stroke:var(--muted);stroke-width:1}
.chart .mark{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 3}
.chart .band{fill:var(--band)}
.chart .inside{pointer-events:none;font-variant-numeric:tabular-nums}
.chart .area{stroke-width:0}
.chart .saved{fill-opacity:.3}
.fill-total{fill:var(--total)}
.chart .beyond{fill:var(--ink)}
.chart .whisker{stroke:var(--ink);stroke-width:1.5}
.chart .paler-1{fill-opacity:.6}
.chart .paler-2{fill-opacity:.35}
.chart .change{stroke:var(--ink);stroke-width:2}
.chart .paper{fill:var(--paper);fill-opacity:.85}
.chart .pause{fill:var(--paper);stroke:var(--ink);stroke-width:1.5}
.chart .ideal{stroke:var(--ink);stroke-width:2.5}
.chart .curve{fill:none}
.chart .halo{fill:none;stroke:var(--paper);stroke-width:4;stroke-opacity:.7}
.chart .window{fill:none;stroke:var(--ink);stroke-width:2}
.chart .sample{pointer-events:none}
.chart .high{stroke-dasharray:4 3}
.chart .own{stroke:var(--steps);stroke-width:3}
.chart .projected{stroke:var(--steps);stroke-width:2;stroke-dasharray:5 4}
.chart .others{stroke:var(--muted);stroke-width:1.2}
.chart .dot{stroke-width:0;fill:var(--steps)}
.chart .dot.others{fill:var(--muted)}
.chart .leader{stroke:var(--line);stroke-width:1}
.chart .cells{fill:none;shape-rendering:crispEdges}
.chart .shade{stroke-width:0}
.chart .unmeasured{stroke:var(--paper)}
.chart .clear{fill:transparent}
.chart .hole{stroke:var(--muted);stroke-width:1;stroke-dasharray:1 3}
.chart .named{fill:var(--imbalance)}
.chart .cut{font-size:12px;fill:var(--ink)}
"""


def stylesheet() -> str:
    """Write the CSS that pages with charts include once."""
    shades = {**SHADES, **STATUS, **_stages(), **_heat()}
    light = _properties({name: colour.light for name, colour in shades.items()})
    dark = _properties({name: colour.dark for name, colour in shades.items()})
    fills = "".join(
        f".fill-{name}{{fill:var(--{name});stroke:var(--{name});stroke-width:0}}"
        f".chart text.on-{name}{{fill:var(--on-{name})}}\n"
        for name in COLOURS
    )
    fills += "".join(
        f".chart .{name}{{fill:var(--{name});stroke:var(--{name})}}\n" for name in _heat()
    )
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{_RULES}{fills}"
    )


def _stages() -> dict[str, Colour]:
    """Return the colour of every stage, and of text on it."""
    texts = {
        f"on-{name}": Colour(_ink(name in _DEEP), _ink(name in _DEEP_AT_NIGHT)) for name in COLOURS
    }
    return {**COLOURS, **texts}


def _heat() -> dict[str, Colour]:
    return {f"heat-{level}": colour for level, colour in enumerate(HEAT)}


def _properties(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def _ink(light: bool) -> str:
    return _LIGHT_INK if light else _DARK_INK
