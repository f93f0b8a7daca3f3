"""Basic parts of pages: cards, links, lists, code, and the colours of stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, html

from stallscope.analysis.gains.what_if import Advice, Bottleneck
from stallscope.charts import COLOURS, PALETTE
from stallscope.formatting.plain import code_parts
from stallscope.text.verdicts import short_verdict
from stallscope.text.vocabulary import TITLES


def aria(**attributes: str) -> dict[str, Any]:
    """Turn ``label="Ranks"`` into a component's ``aria-label``, a name that Python lacks."""
    return {f"aria-{name}": value for name, value in attributes.items()}


def card(title: str, *content: Any, note: str = "", **look: Any) -> Any:
    """Make a card with a title, a note below it, and content; content that is None is left out.

    Args:
        title: of the card.
        content: its components, from the top down.
        note: a description of the content.
        look: further properties of the card.
    """
    heading = dmc.Title(title, order=2, size="h4", mb=None if note else "xs")
    dimmed = dmc.Text(note, c="dimmed", size="sm", mb="xs") if note else None
    return dmc.Card([heading, dimmed, *content], **{"withBorder": True, "h": "100%", **look})


def sentence_card(
    title: str,
    text: str,
    colour: str = "neutral",
    *more: Any,
    label: str | None = None,
    **look: Any,
) -> Any:
    """Make a card with a page's result, in the colour of a status or of a stage.

    Args:
        title: the result.
        text: the evidence; it may be empty.
        colour: the name of the status or the stage.
        more: the components below.
        label: the kind of result, above it.
        look: further properties of the card.
    """
    return dmc.Card(
        [
            dmc.Text(label, size="sm", fw=600, c="dimmed") if label else None,
            dmc.Title(title, order=2, size="h3"),
            dmc.Text(text, mt="xs") if text else None,
            *more,
        ],
        withBorder=True,
        className="verdict-card",
        style=colours_of(colour),
        **look,
    )


def outcome_card(title: str, sentences: Iterable[str], label: str = "") -> Any:
    """Make a card with the outcome of a comparison, the sentences below it, and a label above it."""
    return dmc.Card(
        [
            dmc.Text(label, size="sm", c="dimmed") if label else None,
            dmc.Title(title, order=2, size="h3"),
            *(dmc.Text(sentence, size="sm", mt=4) for sentence in sentences),
        ],
        withBorder=True,
    )


def link(text: Any, address: str, **look: Any) -> Any:
    """Link to another page of the dashboard."""
    return dmc.Anchor(text, href=address, refresh=False, **look)


def link_in_text(text: str, address: str) -> Any:
    """Link from within a text, with an underline, because colour alone does not mark a link."""
    return link(text, address, underline="always", size="sm")


def points(items: Iterable[Any]) -> Any:
    """List texts, or lists of texts and components, as points."""
    return dmc.List([dmc.ListItem(item) for item in items], size="sm", spacing=4)


def code_block(text: str, label: str, **look: Any) -> Any:
    """Show lines to copy; the label is for screen readers."""
    return dmc.Code(text, block=True, tabIndex=0, **look, **aria(label=label))


def coded_words(text: str) -> list[Any]:
    """Show text between backticks as code, the rest as words."""
    return [dmc.Code(part) if is_code else part for part, is_code in code_parts(text)]


def advice_steps(pieces: Iterable[Advice]) -> list[Any]:
    """Show advice: a bold action, a line to copy, a caveat."""
    return [part for advice in pieces for part in _step(advice)]


def _step(advice: Advice) -> Iterator[Any]:
    reason = [*coded_words(advice.reason), " "] if advice.reason else []
    action = html.Strong(coded_words(advice.emphasised))
    yield dmc.Text([*reason, action, *coded_words(advice.rest)], size="sm")
    if advice.line:
        yield code_block(advice.line, "To copy", my=4)
    if advice.caveat:
        yield dmc.Text(coded_words(advice.caveat), size="sm", c="dimmed")


def progress_bar(done: float, whole: float, label: str, **look: Any) -> Any:
    """Show progress as a bar."""
    section = dmc.ProgressSection(value=100 * done / max(whole, 1), **aria(label=label))
    return dmc.ProgressRoot(section, **look)


def add_script(app: Dash, function: str, *dependencies: Any, at_start: bool = True) -> None:
    """Let a function of the assets answer a callback in the browser, such as ``stallscope.keepView``.

    Args:
        app: gets the callback.
        function: its namespace and name.
        dependencies: the callback's outputs, inputs and states.
        at_start: whether to call it when its inputs appear.
    """
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction(*function.split(".")), *dependencies, prevent_initial_call=not at_start
    )


def colours_of(name: str) -> dict[str, str]:
    """Give a colour of the palette to the stylesheet."""
    return {"--colour": PALETTE[name].css}


def named_swatch(name: str) -> Any:
    """Show a stage's colour and its title."""
    return labelled_swatch(name, TITLES[name])


def labelled_swatch(name: str, label: str) -> Any:
    """Show a stage's colour and a label; verdicts other than stages have no colour."""
    colour = html.Span(className="swatch", style=colours_of(name)) if name in COLOURS else None
    return html.Span([colour, label], className="named-swatch")


def line_sample(colour: str, dash: str, label: str) -> Any:
    """Show how a chart draws a line, and a label."""
    sample = html.Span(className=f"line-sample line-{dash}", style=colours_of(colour))
    return html.Span([sample, label], className="named-swatch")


def verdict_swatch(bottleneck: Bottleneck) -> Any:
    """Show a verdict in a few words; a colour stands for a fault."""
    verdict = short_verdict(bottleneck)
    return labelled_swatch(bottleneck.kind, verdict) if bottleneck.fault else html.Span(verdict)
