"""The style sheet of all pictures: colours as custom properties, for light and dark pages."""

from __future__ import annotations

from ..palette import COLOURS, HEAT, Colour

_DARK_INK, _LIGHT_INK = "#14171c", "#ffffff"

_SHADES = {
    "ink": Colour("#1b2027", "#e8eaed"),
    "muted": Colour("#5b6470", "#a3abb6"),
    "line": Colour("#dfe3e8", "#353c46"),
    "paper": Colour("#ffffff", "#1b1f26"),
    "band": Colour("#fdeee4", "#3a261a"),
    "total": Colour("#4a5361", "#b4bcc8"),
}

_RULES = """\
.picture{display:block;width:100%;height:auto;font-family:inherit}
.picture text{font-size:13px;fill:var(--ink)}
.picture .tick{font-size:12px;fill:var(--muted);font-variant-numeric:tabular-nums}
.picture .strong{font-weight:650}
.picture .grid{stroke:var(--line);stroke-width:1}
.picture .zero{stroke:var(--muted);stroke-width:1}
.picture .mark{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 3}
.picture .band{fill:var(--band)}
.picture .inside{pointer-events:none;font-variant-numeric:tabular-nums}
.picture .area{stroke:var(--paper);stroke-width:.5}
.picture .saved{fill-opacity:.3}
.fill-total{fill:var(--total)}
.picture .beyond{fill:var(--ink)}
.picture .whisker{stroke:var(--ink);stroke-width:1.5}
.picture .paler-1{fill-opacity:.6}
.picture .paler-2{fill-opacity:.35}
.picture .change{stroke:var(--ink);stroke-width:2}
.picture .paper{fill:var(--paper);fill-opacity:.85}
.picture .pause{fill:var(--paper);stroke:var(--ink);stroke-width:1.5}
.picture .ideal{stroke:var(--ink);stroke-width:2.5}
.picture .curve{fill:none}
.picture .own{stroke:var(--steps);stroke-width:3}
.picture .projected{stroke:var(--steps);stroke-width:2;stroke-dasharray:5 4}
.picture .others{stroke:var(--muted);stroke-width:1.2}
.picture .dot{stroke-width:0;fill:var(--steps)}
.picture .dot.others{fill:var(--muted)}
.picture .leader{stroke:var(--line);stroke-width:1}
.picture .unmeasured{fill:var(--paper)}
.picture .hole{stroke:var(--muted);stroke-width:1;stroke-dasharray:1 3}
.picture .named{fill:var(--imbalance)}
"""


def stylesheet() -> str:
    """CSS that pages with pictures include once."""
    shades = {**_SHADES, **_stages(), **_heat()}
    light = _properties({name: colour.light for name, colour in shades.items()})
    dark = _properties({name: colour.dark for name, colour in shades.items()})
    fills = "".join(
        f".fill-{name}{{fill:var(--{name});stroke:var(--{name});stroke-width:0}}"
        f".picture text.on-{name}{{fill:var(--on-{name})}}\n"
        for name in COLOURS
    )
    fills += "".join(f".picture .{name}{{fill:var(--{name})}}\n" for name in _heat())
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{_RULES}{fills}"
    )


def _stages() -> dict[str, Colour]:
    """Every stage's colour, and the colour of text on it."""
    texts = {
        f"on-{name}": Colour(_ink_on(colour.light), _ink_on(colour.dark))
        for name, colour in COLOURS.items()
    }
    return {**COLOURS, **texts}


def _heat() -> dict[str, Colour]:
    return {f"heat-{level}": colour for level, colour in enumerate(HEAT)}


def _properties(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def _ink_on(background: str) -> str:
    """Dark or light text, whichever stands out more (contrast as in WCAG 2)."""
    return max((_DARK_INK, _LIGHT_INK), key=lambda ink: contrast(ink, background))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
