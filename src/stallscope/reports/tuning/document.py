"""The document on tuning: a headline for each autotune log and each Timeline."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.analysis.tuning import TimelineSays, Tuned, Tuning

from ..document import Block, Code, Document, KeyFigures, Listing, Section, Text, sections_of
from .contents import headline, sentences, timeline_figures, timeline_headline, tried_table
from .launch_commands import commands, environment


def document(tuning: Tuning) -> Document:
    """Build the document; warnings come last."""
    sections = [section for one in tuning.tuned for section in _tuned(one)]
    sections += [_timeline(name, says) for name, says in tuning.timelines]
    if tuning.warnings:
        sections.append(Section("Warnings", (Listing(tuning.warnings, role="caveats"),)))
    return Document("Tuning", sections, "settings")


def _tuned(one: Tuned) -> Iterator[Section]:
    blocks: list[Block] = [Listing(sentences(one))]
    if one.verdict != "leave" and one.setting is not None:
        blocks.append(Code("\n".join(environment(one))))
        blocks += [Code(text, launcher) for launcher, text in commands(one).items()]
    yield Section(headline(one), blocks, style="headline", label=one.name)
    yield from sections_of(tried_table(one))


def _timeline(name: str, says: TimelineSays) -> Section:
    blocks: list[Block] = [KeyFigures.of(timeline_figures(says))]
    if says.advice:
        blocks.append(Listing([str(piece) for piece in says.advice], role="steps"))
    if says.cannot_name:
        blocks.append(Text(says.cannot_name))
    return Section(timeline_headline(says), blocks, style="headline", label=name)
