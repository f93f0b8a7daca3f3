"""The verdict: what limits the run, what to do, and the gain."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.text.gains import how_sure, main_gain, saved, speedup
from stallscope.text.verdicts import headline

from .coded_words import coded_words
from .sentence_card import sentence_card

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
    return dmc.Group(
        [
            dmc.Text(speedup(gain.what_if), className="gain", span=True),
            dmc.Text(_gain_sentence(gain.what_if), size="sm", flex=1, miw=200),
        ],
        gap="md",
        mt="md",
        align="center",
    )


def _gain_sentence(gain: WhatIf) -> str:
    return f"as fast: saves {saved(gain)} per step ({how_sure(gain)})."


def _advice(advice: tuple[str, ...]) -> Any:
    if not advice:
        return None
    return dmc.Box(
        [
            dmc.Title("What to do", order=3, size="h6", mt="md", mb=4),
            dmc.List([dmc.ListItem(coded_words(line)) for line in advice], size="sm", spacing=4),
        ],
        className="advice",
    )
