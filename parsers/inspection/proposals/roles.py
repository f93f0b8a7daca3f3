"""Find the possible meaning of a number in the words next to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from .line_groups import Template

RoleKind = Literal[
    "time",
    "stamp",
    "step",
    "epoch",
    "rank",
    "count",
    "first",
    "duration",
    "data",
    "samples",
    "rate",
    "other",
]
#: ``unknown`` is a duration without a unit, taken as seconds.
Unit = Literal["seconds", "ms", "unknown"]


class Role(NamedTuple):
    """The possible meaning of a number.

    ``stamp`` is a number with the name of a timestamp, ``count`` a number before its maximum
    (``[ 20/500]``), ``first`` the first number in its line, ``data`` seconds of waiting for data,
    ``samples`` a rate of samples, and ``rate`` any other rate.
    """

    kind: RoleKind
    unit: Unit = "unknown"
    #: For durations: 0 if it is a step's, 1 if that is likely, 2 if it may be that of several steps.
    order: int = 0


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# How much text before and after a number can name it.
_NEAR = 48
_WORD = re.compile(r"[A-Za-z]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STEPS = _words(
    "step steps iter iters iteration iterations it itr batch batches update updates up minibatch "
    "minibatches"
)
_EPOCHS = _words("epoch epochs ep")
# The last one is MLPerf's.
_STAMPS = _words("timestamp stamp ts mll")
# A word right after a number, as in ``3epoch``.
_ATTACHED = re.compile(r"[A-Za-z]+")
# Words that may stand between these and their number.
_AFTER = _words("train training no num number nr idx index id count n current cur")
_MORE = r"(?![A-Za-z])"
_SECONDS, _MS = r"(?:seconds?|secs?|s)", r"(?:milliseconds?|millis|msecs?|ms)"
_THING = (
    r"(?:samples?|images?|imgs?|tok|tokens?|toks|examples?|ex|seqs?|sequences?|sentences?|words?|items?|rows?"
    r"|records?|frames?|batch(?:es)?|it|its|iters?|iterations?|steps?|updates?|[kmgt]?i?b|[kmgt]?bytes"
    r"|[tgp]?flops?)"
)
_PER_SECOND = rf"\W?\s?(?:/|_?per_?)\s?{_SECONDS}{_MORE}"
_RATE_BEFORE = re.compile(
    rf"{_THING}{_PER_SECOND}[\W_]*$|\b(?:throughput|speed|fps|wps|ups|tps|qps|mfu|tflops){_MORE}[^,;|\t]*$"
)
# A word before a colon is the name of the next number.
_RATE_AFTER = re.compile(
    rf"\s?(?:{_THING}{_PER_SECOND}|(?:fps|wps|ups|tps|tflops){_MORE})(?!\s?[:=])"
)
_SAMPLES = (
    rf"(?<![a-z])(?:samples?|images?|imgs?|examples?|ex|seqs?|sequences?|sentences?){_PER_SECOND}"
)
_SAMPLES_BEFORE, _SAMPLES_AFTER = (
    re.compile(rf"{_SAMPLES}[\W_]*$"),
    re.compile(rf"\s?{_SAMPLES}(?!\s?[:=])"),
)
_PER_STEP = r"\s?(?:/|_?per_?)\s?(?:step|it|iter|iteration|batch|update|minibatch)(?:s\b)?"
_UNIT_BEFORE = re.compile(
    rf"(?:(?:\b|_)(?P<ms>{_MS})|(?:\b|_)(?P<seconds>{_SECONDS}))(?P<step>{_PER_STEP})?\W*$"
)
_UNIT_AFTER = re.compile(
    rf"\s?[\[(]?(?:(?P<ms>{_MS})|(?P<seconds>{_SECONDS}))(?![A-Za-z])(?P<step>{_PER_STEP})?(?!\s?[:=])"
)
# As in ``12.3s/100 iters``.
_PER_SEVERAL = re.compile(rf"\s?{_SECONDS}\s?(?:/|per)\s?")
# The number of steps of a duration, as in ``Time(100 iters): 4.06s``.
_OF_SO_MANY = re.compile(rf"\s{_THING}{_MORE}")
_TIMES = _words("time took takes elapsed duration dt cost wall latency taken")
_STEP_TIMES = re.compile(
    r"(?:step|it|iter|iteration|batch|update)[ _.-]?(?:time|duration|latency|dt|cost|timing)"
    r"|time(?:[ _.-]per[ _.-]|/)(?:step|it|iter|iteration|batch|update)"
)
# A step's duration, if the number has a unit.
_STEP_MEANS = re.compile(
    r"(?:step|it|iter|iteration|batch|update)[ _.-]?(?:avg|average|mean|median)\W*$"
)
# Words that are rarely used for the time since the line before.
_EACH = _words("time dt latency")
# Times of other things, or of several steps.
_OTHER_TIMES = _words(
    "eta remaining left data load loading loader wait waiting fetch forward backward fwd bwd fw bw "
    "optim optimizer opt eval evaluation val valid validation test sync comm communication allreduce "
    "reduce save saving checkpoint ckpt io compile compilation start since until timeout h2d copy "
    "transfer preprocess init initialization"
)
_DATA_BEFORE = re.compile(
    r"(?<![a-z])data(?:[ _.-]?(?:load(?:ing)?|wait(?:ing)?|fetch(?:ing)?))?(?:[ _.-]?time)?[\s:=\"']*$"
)
# Text between a number and its maximum.
_SIZE = re.compile(r"^\s?(?:/|of)\s?$")


def roles_of(template: Template) -> tuple[Role, ...]:
    """Return the role of each place of a template, by its words alone."""
    texts = template.texts
    return tuple(
        Role("time") if is_time else _role(texts, at) for at, is_time in enumerate(template.is_time)
    )


def _role(texts: Sequence[str], at: int) -> Role:
    before, after = texts[at], texts[at + 1][:_NEAR]
    if at and _SIZE.match(before):
        return Role("other")
    # A word right after the number before belongs to that one.
    before = _ATTACHED.sub("", before, count=1) if at and before[:1].isalpha() else before
    named = _named(before[-_NEAR:], after)
    if named.kind == "other":
        attached = _ATTACHED.match(after)
        named = _counted([attached[0].lower()]) if attached else named
    if named.kind == "other":
        if at + 2 < len(texts) and _SIZE.match(texts[at + 1]):
            return Role("count")
        if not any(_WORD.search(text) for text in texts[: at + 1]):
            return Role("first")
    return named


def _named(before: str, after: str) -> Role:
    before = _CAMEL.sub(" ", before).lower()
    after = after.lower()
    words = _WORD.findall(before)
    if after.startswith("%"):
        return Role("other")
    if _SAMPLES_AFTER.match(after) or _SAMPLES_BEFORE.search(before):
        return Role("samples")
    if _RATE_AFTER.match(after) or _RATE_BEFORE.search(before):
        return Role("rate")
    return _duration(before, after, words) or _counted(words)


def _duration(before: str, after: str, words: Sequence[str]) -> Role | None:
    """Return the role of a number with a unit of time or a word for durations; None for others."""
    if _PER_SEVERAL.fullmatch(after):
        return Role("other")
    unit = _UNIT_AFTER.match(after) or _UNIT_BEFORE.search(before)
    if _DATA_BEFORE.search(before) and not (unit and unit["ms"]):
        return Role("data")
    near = words[-4:]
    is_step = unit is not None and (unit["step"] is not None or bool(_STEP_MEANS.search(before)))
    is_step = is_step or _STEP_TIMES.search(before) is not None
    if unit is None and not is_step and not (_TIMES & set(near[-2:])):
        return None
    if unit is None and near and near[-1] in _STEPS | _EPOCHS and not is_step:
        return None
    if unit is None and _OF_SO_MANY.match(after):
        return Role("other")
    if _OTHER_TIMES & set(near):
        return Role("other")
    kind: Unit = "unknown" if unit is None else "ms" if unit["ms"] else "seconds"
    return Role("duration", kind, 0 if is_step else 1 if _EACH & set(near[-2:]) else 2)


def _counted(words: Sequence[str]) -> Role:
    """Return the role of a number after these words: a step, an epoch, a timestamp or a rank."""
    named = next((word for word in reversed(words[-3:]) if word not in _AFTER), "")
    if "per" in words[-2:]:
        return Role("other")
    if named in _STEPS:
        return Role("step")
    if named in _EPOCHS:
        return Role("epoch")
    if named in _STAMPS:
        return Role("stamp")
    if named == "rank" and "local" not in words[-2:]:
        return Role("rank")
    return Role("other")
