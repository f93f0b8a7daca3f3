"""The document on tuning: for each autotune log and Timeline, tables and commands to paste."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from stallscope.analysis.tuning import TimelineAdvice, Tried, Tuned, Tuning, UntunedRun
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted, joined
from stallscope.formatting.numbers import (
    amount,
    faster_between,
    faster_in_words,
    percent,
    plus_minus,
    significant,
)
from stallscope.parsers.formats.autotune import Sample

from ..document import (
    LEFT_OUT,
    NOTHING,
    Code,
    Document,
    DocumentBlock,
    KeyFigures,
    Listing,
    Section,
    Steps,
    Table,
    Text,
    sections_of,
)
from ..report_formats import Content, content_of, fields_of, mean_fields

# Reports as files show all of them.
_MOST_SETTINGS = 8
_SWITCHES = {
    "hierarchical_allreduce": "hierarchical allreduce",
    "hierarchical_allgather": "hierarchical allgather",
    "torus_allreduce": "torus allreduce",
    "cache_enabled": "response cache",
}
_WIDTH = 76
# The flags of horovodrun for on and off; the flag of the cache takes a number.
_FLAGS = {
    "hierarchical_allreduce": ("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    "hierarchical_allgather": ("--hierarchical-allgather", "--no-hierarchical-allgather"),
    "torus_allreduce": ("--torus-allreduce", "--no-torus-allreduce"),
    "cache_enabled": ("--cache-capacity 1024", "--cache-capacity 0"),
}


def document(tuning: Tuning, left_out: Sequence[str], form: str) -> Document:
    """Build the document; warnings come last."""
    sections = [section for tuned in tuning.tuned for section in _tuned(tuned)]
    sections += [_timeline(name, says) for name, says in tuning.timelines]
    if tuning.warnings:
        sections.append(Section("Warnings", (Listing(tuning.warnings, role="caveats"),)))
    if left_out and form != "terminal":
        # The command prints them next to what the terminal shows.
        sections.append(Section(LEFT_OUT, (Listing(left_out, role="caveats"),)))
    return Document("Tuning", sections, "settings")


def _tuned(tuned: Tuned) -> Iterator[Section]:
    blocks: list[DocumentBlock] = [Listing(sentences(tuned))]
    if tuned.verdict != "leave" and tuned.setting is not None:
        blocks.append(Code("\n".join(environment(tuned))))
        blocks += [Code(text, launcher) for launcher, text in commands(tuned).items()]
    yield Section(headline(tuned), blocks, style="headline", label=tuned.name)
    yield from sections_of(tried_table(tuned))


def _timeline(name: str, says: TimelineAdvice) -> Section:
    blocks: list[DocumentBlock] = [KeyFigures.of(timeline_figures(says))]
    if says.advice:
        blocks.append(Steps(says.advice))
    if says.no_steps:
        blocks.append(Text(f"Steps are unknown: {says.no_steps}."))
    if says.cannot_name:
        blocks.append(Text(says.cannot_name))
    title = "What to change" if says.advice else "Nothing in it asks for other settings"
    return Section(title, blocks, style="headline", label=name)


def setting_in_words(sample: Sample) -> str:
    """Describe a setting: ``cycles of 10 ms, fusion up to 8 MiB, response cache on``."""
    on = [_SWITCHES.get(name, name) for name, on in sample.switches.items() if on]
    off = [] if sample.switches.get("cache_enabled", True) else ["response cache off"]
    parts = [
        f"cycles of {significant(sample.cycle_time_ms)} ms",
        f"fusion up to {significant(sample.fusion_mib)} MiB",
        *(f"{name} on" for name in on),
        *off,
    ]
    return ", ".join(parts)


def headline(tuned: Tuned) -> str:
    """Say what to do."""
    if tuned.setting is None:
        return "Nothing was scored yet"
    words = setting_in_words(tuned.setting)
    if tuned.verdict == "fix":
        return f"Fix {words}"
    if tuned.verdict == "leave":
        slower = any(
            (comparison.saved_ms.ci95 or (0.0, 0.0))[1] < 0 for comparison in tuned.compared
        )
        are = "slower" if slower else "not surely faster"
        return f"Leave the settings as they are: steps with {words} are {are}"
    if tuned.verdict == "tuning":
        return f"Still trying; the best so far: {words}"
    return f"Best by the autotuner's score: {words}"


def sentences(tuned: Tuned) -> list[str]:
    """Write the evidence for the headline."""
    parts = [*_gain(tuned), *_scores(tuned)]
    if tuned.idle:
        switches = () if tuned.setting is None else tuned.setting.switches
        names = [_SWITCHES[name] for name in tuned.idle if name in switches]
        if names:
            parts.append(f"Left out, as it does nothing on this job's hosts: {joined(names)}.")
    if rounded(tuned) and tuned.verdict != "leave":
        parts.append("horovodrun's flag takes whole MiB; the environment's line is exact.")
    return parts


def _gain(tuned: Tuned) -> Iterator[str]:
    if tuned.insufficient:
        yield f"Its effect on steps is unknown (insufficient_data): {tuned.insufficient}."
        return
    for untuned in tuned.compared:
        yield _compared(untuned, tuned)
    yield "That is one run against another; the next pair may differ by more than the interval says."


def _compared(untuned: UntunedRun, tuned: Tuned) -> str:
    settled, ci95 = tuned.settled_ms, untuned.ci95
    now = "" if settled is None else amount(settled.value, "ms", settled.ci95)
    before = amount(untuned.step_ms.value, "ms", untuned.step_ms.ci95)
    sure = "too few steps for an interval"
    if ci95 is not None:
        sure = f"95%: {faster_between(untuned.speedup, ci95)}"
    return (
        f"Steps take {now} with it and {before} in {untuned.analysis.run.name}, without the autotuner: "
        f"{faster_in_words(untuned.speedup, ci95)} ({sure})."
    )


def _scores(tuned: Tuned) -> Iterator[str]:
    if tuned.setting is None:
        return
    tried = counted(len(tuned.log.samples), "setting")
    yield (
        f"Its score is {significant(tuned.setting.score)} MB/s, the best of {tried}: bytes reduced per "
        "time, with all of the step in it."
    )
    if tuned.noise is None:
        yield "No setting was tried twice: how much scores differ by chance is not known."
    else:
        more = tuned.alike - 1
        others = (
            "no other setting is that close"
            if not more
            else f"{counted(more, 'other setting')} {'is' if more == 1 else 'are'} within that of it"
        )
        yield f"Scores of one setting differ by up to {percent(tuned.noise)}, and {others}."
    if not tuned.setting.switches.get("cache_enabled", True):
        yield (
            "Without the response cache every step is negotiated in full, which costs more on more "
            "ranks: the tuner tries it first, and prefers it by chance at times."
        )


def tried_table(tuned: Tuned) -> Table | None:
    """Return the settings, best score first, with the steps that certainly ran with each."""
    if not tuned.tried:
        return None
    settings = sorted(tuned.tried, key=lambda setting: setting.sample.score, reverse=True)
    samples = [setting.sample for setting in settings]
    columns: dict[str, Iterable[str]] = {
        "Setting": [f"{setting.number:,}" for setting in settings],
        "Cycle, ms": [significant(sample.cycle_time_ms) for sample in samples],
        "Fusion, MiB": [significant(sample.fusion_mib) for sample in samples],
        "On": map(_switches_on, samples),
        "MB/s": [significant(sample.score) for sample in samples],
    }
    note = ""
    if any(setting.steps for setting in settings):
        columns["Steps"] = [f"{setting.steps:,}" for setting in settings]
        columns["ms per step"] = [_time(setting.step_ms) for setting in settings]
        note = (
            "Steps are those that certainly ran with the setting; ± is the 95% interval of their mean, "
            "where there are enough."
        )
    return Table.of(
        "Settings that were tried",
        columns,
        words=frozenset({3}),
        note=note,
        most={"terminal": _MOST_SETTINGS},
    )


def _switches_on(sample: Sample) -> str:
    on = (name for name, is_on in sample.switches.items() if is_on)
    return ", ".join(name.replace("_enabled", "").replace("_", " ") for name in on) or NOTHING


def _time(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    if mean.ci95 is None:
        return f"{significant(mean.value)} (few)"
    return plus_minus(mean.value, mean.ci95)


def timeline_figures(says: TimelineAdvice) -> list[tuple[str, str]]:
    """Return the known figures of a Timeline with their names."""
    figures = [
        ("Reductions", f"{says.reductions:,}" if says.reductions else ""),
        ("Tensors in each", "" if says.tensors_each is None else significant(says.tensors_each)),
        ("Steps", f"{says.steps:,}" if says.steps else ""),
        ("Below 100 kB", "" if says.small_share is None else percent(says.small_share)),
        ("Cycle", "" if says.cycle_ms is None else amount(says.cycle_ms, "ms")),
        ("Negotiated in full", "" if says.in_full is None else percent(says.in_full)),
        ("Negotiation per step", _milliseconds(says.negotiation_ms)),
        ("Waiting for data per step", _milliseconds(says.wait_ms)),
        ("Copies per step", _milliseconds(says.copy_ms)),
        ("Transfer per step", _milliseconds(says.transfer_ms)),
    ]
    return [(name, text) for name, text in figures if text]


def _milliseconds(value: float | None) -> str:
    return "" if value is None else amount(value, "ms")


# -- The lines that start a job with a setting: for the environment and for each launcher ---------


def environment(tuned: Tuned) -> tuple[str, ...]:
    """Return the lines that set the setting, without switches that have no effect on this job."""
    chosen = _chosen(tuned)
    return () if chosen is None else chosen.environment


def commands(tuned: Tuned) -> dict[str, str]:
    """Return the command of each launcher by its name; nothing without a setting."""
    chosen = _chosen(tuned)
    if chosen is None:
        return {}
    ranks = 8 if tuned.run is None else tuned.run.run.size
    flags = [
        f"--fusion-threshold-mb {_whole_mib(chosen)}",
        f"--cycle-time-ms {chosen.cycle_time_ms:g}",
        *(_FLAGS[name][not on] for name, on in chosen.switches.items() if name in _FLAGS),
    ]
    exported = [f"-x {line}" for line in chosen.environment]
    pairs = [line.partition("=") for line in chosen.environment]
    inside = "".join(f'    "{name}": "{value}",\n' for name, _, value in pairs)
    return {
        "horovodrun": _shell([f"horovodrun -np {ranks}", *flags, "python train.py"]),
        "mpirun": _shell([f"mpirun -np {ranks}", *exported, "python train.py"]),
        "spark": f"horovod.spark.run(train, num_proc={ranks}, env={{\n{inside}}})",
    }


def rounded(tuned: Tuned) -> bool:
    """Return whether horovodrun's flag, which takes whole MiB, rounds the setting."""
    chosen = tuned.setting
    return chosen is not None and _whole_mib(chosen) != chosen.fusion_mib


def _whole_mib(sample: Sample) -> int:
    """Return the nearest whole number, but 0 only if fusion is off."""
    return max(1, round(sample.fusion_mib)) if sample.fusion_mib else 0


def _chosen(tuned: Tuned) -> Sample | None:
    if tuned.setting is None:
        return None
    switches = {name: on for name, on in tuned.setting.switches.items() if name not in tuned.idle}
    return replace(tuned.setting, switches=switches)


def _shell(words: Sequence[str]) -> str:
    return " \\\n  ".join(_packed(words))


def _packed(words: Sequence[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) > _WIDTH:
            yield line
            line = ""
        line += f" {word}" if line else word
    yield line


# -- The JSON of tuning, which docs/tune.schema.json describes ------------------------------------


def json_content(tuning: Tuning, left_out: Sequence[str] = ()) -> Content:
    """Return all results as one object; unknown values are None."""
    return content_of(
        autotune=[_tuned_content(tuned) for tuned in tuning.tuned],
        timelines=[
            {"name": name, **vars(says), "advice": list(map(str, says.advice))}
            for name, says in tuning.timelines
        ],
        warnings=[*tuning.warnings, *left_out],
    )


def _tuned_content(tuned: Tuned) -> dict[str, Any]:
    return {
        **fields_of(tuned, "name verdict"),
        "settled": tuned.log.settled is not None,
        "setting": None if tuned.setting is None else _sample(tuned.setting),
        "environment": environment(tuned),
        "commands": commands(tuned),
        **fields_of(tuned, "score_noise=noise alike"),
        "insufficient": tuned.insufficient or None,
        "run": None if tuned.run is None else tuned.run.run.id,
        **mean_fields("settled_step_ms", tuned.settled_ms),
        "tried": [_tried(tried) for tried in tuned.tried],
        "compared": [_compared_content(compared) for compared in tuned.compared],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return fields_of(sample, "cycle_time_ms fusion_mib switches score_mb_s=score")


def _tried(tried: Tried) -> dict[str, Any]:
    return {
        "number": tried.number,
        **_sample(tried.sample),
        "steps": tried.steps,
        **mean_fields("step_ms", tried.step_ms),
    }


def _compared_content(untuned: UntunedRun) -> dict[str, Any]:
    names = "step_ms saved_ms speedup ci95"
    return {"run": untuned.analysis.run.id, **fields_of(untuned, names)}
