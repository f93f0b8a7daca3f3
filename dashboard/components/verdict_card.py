"""The verdict: what limits the run, what to do, and the gain."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from stallscope.analysis import Analysis
from stallscope.text.fixes import how_sure, saved, speedup
from stallscope.text.gains import main_gain
from stallscope.text.verdicts import headline

from .basics import coded_words, points, sentence_card

# Verdicts without a stage take a quiet colour.
_QUIET = "other"


def verdict_card(analysis: Analysis) -> Any:
    """Make the verdict's card, the first on the page."""
    bottleneck = analysis.bottleneck
    stage = bottleneck.kind if analysis.entry(bottleneck.kind) else _QUIET
    return sentence_card(
        headline(bottleneck, analysis.stragglers),
        bottleneck.evidence,
        stage,
        _gain(analysis),
        _advice(bottleneck.advice),
        label="Verdict",
        h="100%",
    )


def _gain(analysis: Analysis) -> Any:
    gain = main_gain(analysis)
    if gain is None:
        return None
    what_if = gain.what_if
    return dmc.Group(
        [
            dmc.Text(speedup(what_if), className="gain", span=True),
            dmc.Text(
                f"as fast: saves {saved(what_if)} per step ({how_sure(what_if)}).",
                size="sm",
                flex=1,
                miw=200,
            ),
        ],
        gap="md",
        mt="md",
        align="center",
    )


def _advice(advice: tuple[str, ...]) -> Any:
    if not advice:
        return None
    return dmc.Box(
        [
            dmc.Title("What to do", order=3, size="h6", mt="md", mb=4),
            points(map(coded_words, advice)),
        ],
        className="advice",
    )
