"""Charts of an analysis, their colours, and two ways to draw them.

``charts`` and the files next to it turn an Analysis into descriptions of charts. ``axis``, ``curves``,
``marks`` and ``rows`` lay a chart out once: axes, ticks, labels, order, tooltips and the legend.
``svg`` draws a layout for reports, which need no scripts, ``plotly_figures`` for the dashboard and
notebooks.
"""

from typing import NamedTuple

# One colour per stage everywhere, distinct for any kind of colour vision: from the palette of Okabe and
# Ito (Color Universal Design, 2008), each with its shade for dark pages.


class Colour(NamedTuple):
    """A colour for light pages and one for dark pages."""

    light: str
    dark: str

    @property
    def css(self) -> str:
        """Write the pair for CSS, which takes the colour of the page's scheme."""
        return f"light-dark({self.light}, {self.dark})"


#: A colour has one meaning: entries of the same colour are parts of the same whole.
COLOURS: dict[str, Colour] = {
    "input": Colour("#e69f00", "#f0b429"),
    "compute": Colour("#0072b2", "#4ba3d9"),
    "other": Colour("#8a8f98", "#9aa1ab"),
    "imbalance": Colour("#d55e00", "#f07f33"),
    "wait": Colour("#e8b9a0", "#7d4a30"),
    "allreduce": Colour("#009e73", "#2cc79b"),
    "waiting_or_allreduce": Colour("#9bbf9f", "#4f7a63"),
    "startup": Colour("#c3c7cd", "#555b64"),
    "warmup": Colour("#a6abb3", "#6d747e"),
    "steps": Colour("#6a3d9a", "#ae86e0"),
    "rest": Colour("#7d9fb5", "#7f9fb3"),
    "validation": Colour("#882255", "#b8507f"),
    "checkpoint": Colour("#cc79a7", "#dd97bd"),
    "restart": Colour("#7f8f2e", "#aebf5a"),
    "repeated": Colour("#c9a96a", "#c2a35c"),
    "stopped": Colour("#ee6a73", "#f5858c"),
    "epoch_gap": Colour("#f0e442", "#d6cb3a"),
    "unrecorded": Colour("#e6e8eb", "#d9dce0"),
    # The part of a stage that other ranks wait for, in a paler shade of the stage's colour.
    "input_waiting": Colour("#f6d48a", "#8a6a1f"),
    "compute_waiting": Colour("#8fc1e3", "#2b5f80"),
    "other_waiting": Colour("#c9ccd1", "#5f656d"),
    # Losses against a baseline, in the colour of the stage; scale costs more than allreduce.
    "input_stall": Colour("#e69f00", "#f0b429"),
    "scale": Colour("#7a4a21", "#b5835a"),
    # The parts of an allreduce, in shades of its colour.
    "bandwidth": Colour("#009e73", "#2cc79b"),
    "latency": Colour("#6cc9a8", "#1c7a5f"),
    "negotiation": Colour("#00563f", "#b5efdc"),
    "fusion": Colour("#b5e3d2", "#14503f"),
}


#: Colours of text, lines, backgrounds, and bars of totals.
SHADES: dict[str, Colour] = {
    "ink": Colour("#1b2027", "#e8eaed"),
    "muted": Colour("#5b6470", "#a3abb6"),
    "line": Colour("#dfe3e8", "#353c46"),
    "paper": Colour("#ffffff", "#1b1f26"),
    "band": Colour("#fdeee4", "#3a261a"),
    "total": Colour("#4a5361", "#b4bcc8"),
}


#: Colours of severities.
STATUS: dict[str, Colour] = {
    "neutral": Colour("#5b6470", "#a3abb6"),
    "warning": Colour("#9a5b00", "#ffc266"),
    "error": Colour("#b3261e", "#ff8a80"),
}


#: All of them by name.
PALETTE: dict[str, Colour] = {**STATUS, **SHADES, **COLOURS}


#: From zero to the most, ever darker on light pages and ever lighter on dark ones: the order shows
#: without colour vision, too.
HEAT: tuple[Colour, ...] = (
    Colour("#f3efe9", "#303138"),
    Colour("#fbdcb8", "#4d3220"),
    Colour("#f8bd7e", "#74421a"),
    Colour("#ee9648", "#a15513"),
    Colour("#d96c1c", "#cf6d17"),
    Colour("#b2480a", "#f0903c"),
    Colour("#832e05", "#ffba7a"),
    Colour("#521a02", "#ffe5c7"),
)
