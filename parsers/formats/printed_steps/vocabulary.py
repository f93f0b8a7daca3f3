"""The words that trainers use for the figures of their step lines, as data.

A figure has a name before it (``elapsed time per iteration (ms): 1398.6``) or a unit after it
(``0.842s``, ``5.62it/s``). Names are compared as words in lower case, without ``per`` and ``in``. What a
name leaves open (whether ``time`` is a step's, and in which unit) the numbers decide (``evidence``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence, Set
from functools import lru_cache
from typing import Literal, NamedTuple

from ...lines.timestamps import CTIME, DATED_MOMENT, DATES_BY_ORDER, TIME

Quantity = Literal[
    "step",  # counts steps
    "count",  # a number without a name before its maximum: ``[ 20/500]``
    "samples",  # counts samples
    "epoch",
    "total",  # the maximum of the count before it
    "since",  # the steps since the line before: ``80.9s (100 iters)``
    "time",  # a duration: of a step, of the steps since the line before, or since a start
    "data",  # the wait for data
    "part",  # another stage of a step
    "rate",
    "stamp",  # seconds since 1970
    "left",  # the time that the rest of the job, or of the epoch, takes
    "rank",
    "batch",  # samples per step
    "trains",  # a figure that only training has, as the loss
    "other",
]


class Word(NamedTuple):
    """The possible meaning of a figure."""

    quantity: Quantity
    #: Seconds in one of its units; None if its words do not tell.
    unit_s: float | None = None
    #: How likely it is of one step (a counter: of the job), 0 is certain.
    order: int = 1
    #: What a rate counts: ``step``, ``sample``, ``token`` or nothing.
    thing: str = ""
    #: Whether it is a mean, by its words.
    is_mean: bool = False
    #: Whether a rate is that of one device.
    of_a_device: bool = False


OTHER = Word("other")
#: A time of day without a date, or that since a start, without a name.
TIME_OF_DAY = Word("time", 1.0, order=3)
#: The name of those of timestamps whose days are uncertain.
OF_DAY = "the lines' times of day"


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Seconds in units of time.
_UNITS = {
    **dict.fromkeys(("us", "usec", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), 3600.0),
}
_SECOND = _set("s sec secs second seconds")
_STEPS = _set(
    "step steps iter iters iteration iterations itr itrs it its batch batches update updates updt "
    "minibatch microbatch"
)
_INDEX = _set("i id idx index")
# In a group of times, ``time/iterations`` counts them.
_MANY = _set("steps iters iterations batches updates epochs episodes timesteps samples tokens")
_EPOCHS = _set("epoch epochs ep")
_SAMPLES = _set(
    "sample samples smpl examples example images image imgs img seq seqs sequences sentences"
)
_TOKENS = _set("token tokens tok toks words")
# Of counters of steps: those of the job, and those of parts of a step.
_OF_THE_JOB = _set("global completed optimizer optim update updates")
_OF_PARTS = _set("micro microbatch minibatch accumulation accum skipped nan local")
# Rates without the thing that they count, or with it in a short name.
_RATES = {
    **dict.fromkeys(("throughput", "speed", "ips", "rate", "sps"), ""),
    **dict.fromkeys(("ups", "its"), "step"),
    **dict.fromkeys(("tps", "wps", "tgs"), "token"),
    "fps": "sample",
}
_TIMES = _set(
    "time times timer dt duration cost elapsed elapse elapsedtime took takes latency timing runtime"
    " wall walltime t"
)
# Of the times of one step.
_EACH = _set("time dt latency")
#: Times that a program writes in seconds, with other names of its records.
IN_SECONDS: dict[str, tuple[str, ...]] = {
    "_runtime": (),
    "wall": ("num_updates",),
    "time": ("epoch", "lr/pg0"),
}
_STAMPS = _set("timestamp stamp ts")
_DATA = _set("data reader loader dataloader dataloading input fetch")
_DATA_PARTS = _set("batch generator get next")
_WAITS = _set("generator wait waiting")
_PARTS = _set(
    "forward fwd fw backward bwd bw optimizer optim opt allreduce reduce gather scatter comm sync "
    "communication collective all inner compute grads grad params layernorm embedding"
)
_MEANS = _set("avg average mean running smoothed ema median")
_DEVICES = _set("gpu gpus device chip rank worker core")
# Figures of other work than a step's, and of what is left.
_LEFT = _set("eta remaining remain left estimated estimate")
_ELSEWHERE = _LEFT | _set(
    "required eval evaluation val valid validation test save saving "
    "checkpoint ckpt download init compile compilation max min total_time limit timeout std seed "
    "version warmup py line pid skipped nan"
)
_TRAINS = _set(
    "loss losses objf lr learning grad norm ppl perplexity acc accuracy mfu tflop tflops flops "
    "momentum mom gnorm entropy reward wd"
)
_IGNORED = _set(
    "per in the of for train training trainer perf stats metrics meters num number no is"
)
# Words beside figures that name nothing of a job: of dates, levels, settings and bars.
_OTHERS = _set(
    "jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat sun am pm utc gmt "
    "debug info warn warning error fatal critical root main stdout stderr log logger logging "
    "and or at to on by with from this new old end start started begin finished done "
    "size batch bs mem memory alloc allocated reserved peak max min sum cur current last first "
    "scale grads weight decay precision bf fp amp nan inf none null true false total "
    "consumed percentage "
    "model config world local global node host device cuda cpu gpu nccl gloo xla tpu "
    "k m g b kb mb gb tb kib mib gib e x c d f h n p v w y z"
)
_WORD = re.compile(r"[a-z]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_MOST_WORDS = 6
_IS_LEFT = re.compile(r"\W{1,3}(?:left|remain|to go|eta)")

# Names that mean something else beside others: ESPnet's ``iter_time`` is the wait for a batch,
# LeRobot's ``ep`` counts episodes, and Stable-Baselines3's running time is in seconds.
_BESIDE: Mapping[str, tuple[frozenset[str], Word]] = {
    "iter time": (frozenset({"forward time", "train time"}), Word("data", 1.0, order=0)),
    "optim step time": (frozenset({"forward time", "train time"}), Word("part", 1.0)),
    "train time": (frozenset({"forward time", "iter time"}), Word("time", 1.0, order=0)),
    "ep": (frozenset({"epch"}), Word("other")),
    "time elapsed": (frozenset({"iterations", "total timesteps"}), Word("time", 1.0)),
    "n updates": (frozenset({"iterations", "total timesteps"}), Word("other")),
}

#: Units after a number, as a regular expression for Python's ``re`` and for RE2.
UNIT = (
    r"(?:(?:samples?|images?|imgs?|examples?|seqs?|sequences?|sentences?|tokens?|toks?|words?|iters?|its?"
    r"|steps?|batch(?:es)?|updates?)?/ ?s(?:ec(?:ond)?)?(?:/(?:gpu|device|rank|chip))?"
    r"|(?:ms|secs?|seconds?|s)(?: ?(?:/|per) ?(?:iters?|iterations?|it|itr|steps?|batch|update))?"
    r"|(?:min(?:ute)?s?|hours?|hrs?))"
)


_KNOWN = frozenset().union(
    *(_UNITS, _STEPS, _INDEX, _EPOCHS, _SAMPLES, _TOKENS, _OF_THE_JOB, _OF_PARTS, _RATES, _TIMES),
    *(_STAMPS, _DATA, _DATA_PARTS, _WAITS, _PARTS, _MEANS, _DEVICES, _LEFT, _ELSEWHERE, _TRAINS),
    *(_IGNORED, _OTHERS),
)


_STEP_TIME = frozenset({*_STEPS, *_TIMES, *_UNITS, *_MEANS, *_IGNORED})


def is_known_word(word: str) -> bool:
    """Return whether a word in lower case is one of trainers, and no name of a job's own."""
    return word in _KNOWN


@lru_cache(maxsize=4096)
def word_of(name: str, unit: str = "") -> Word:
    """Return what a figure may mean.

    Args:
        name: the text before it.
        unit: the unit after it; empty without one.
    """
    every = _words(name.replace("/", " per "))
    words = [word for word in every if word not in _IGNORED]
    after = _words(unit.replace("/", " per ") if unit.lstrip().startswith("/") else unit)
    known = frozenset(words)
    group, _, last = name.rpartition("/")
    if group and words[-1:] and words[-1] in _MANY and _TIMES.issuperset(_words(group)):
        return _counter(_words(last))
    if known & _LEFT and known <= _LEFT | _TIMES:
        return Word("left", _unit_of(after, words))
    if known & _ELSEWHERE:
        return OTHER
    thing = None if "learning" in known else _rate_of(words, after, every)
    if thing is not None:
        return Word(
            "rate",
            thing=thing,
            is_mean=bool(known & _MEANS),
            of_a_device=bool(_DEVICES & (known | frozenset(after))),
        )
    if words[-1:] == ["rank"] and "local" not in known:
        return Word("rank")
    if known & _STAMPS:
        return Word("stamp", 1e-3 if "ms" in known else 1.0)
    return _duration(words, after) or _counter(words)


def names_step_time(name: str) -> bool:
    """Return whether a figure's name has words of the times of steps only: ``train step time``."""
    return _STEP_TIME.issuperset(_words(name))


def names_each(name: str, unit_s: float | None, *, has_mean: bool) -> bool:
    """Return whether a figure's name is seldom that of the time since the line before.

    ``time: 12.3`` may be of a hundred steps, ``time 146.5ms`` or ``Time 0.512 (0.731)`` hardly.
    """
    each = _EACH if has_mean or (unit_s is not None and unit_s < 1) else _EACH - {"time"}
    return not each.isdisjoint(name.split())


def among(word: Word, name: str, names: Set[str]) -> Word:
    """Return what a figure means beside figures of other names."""
    others, other_word = _BESIDE.get(name, (None, word))
    return other_word if others is not None and others <= names else word


def clock_word(before: str, after: str) -> Word:
    """Return what hours, minutes and seconds without a name mean, by the text around them.

    ``00:12:33<04:10`` has the time since a start, and what is left.
    """
    is_left = before.strip() == "<" or _IS_LEFT.match(after)
    return Word("left", 1.0) if is_left else TIME_OF_DAY


def word_in(name: str, names: Container[str]) -> Word:
    """Return what a figure of a record may mean, by the names of its other figures, too."""
    word = word_of(name)
    in_seconds = IN_SECONDS.get(name)
    if word.unit_s is None and in_seconds is not None and all(each in names for each in in_seconds):
        return word._replace(unit_s=1.0)
    return word


def _words(text: str) -> list[str]:
    return _WORD.findall(_CAMEL.sub(" ", text).lower())[-_MOST_WORDS:]


def _rate_of(words: list[str], after: list[str], every: list[str]) -> str | None:
    """Return the thing that a rate counts, empty if that is open; None for other figures.

    Args:
        words: the words of its name, without ``per``.
        after: the words of its unit.
        every: all words of its name: ``updt_s`` are seconds.
    """
    if after[:1] == ["per"] and after[1:2] and after[1] in _SECOND:
        return next((thing for word in words if (thing := _thing(word)) is not None), "")
    for word, per, second in zip(every, every[1:], every[2:], strict=False):
        if per == "per" and second in _SECOND and (thing := _thing(word)) is not None:
            return thing
    for group in (after, words):
        for word, second in zip(group, group[1:], strict=False):
            thing = _thing(word)
            if second in _SECOND and thing is not None and (group is after or thing != "step"):
                return thing
    # A ``pass_rate`` is no rate of steps.
    rates = _RATES if _KNOWN.issuperset(words) else _RATES.keys() - {"rate"}
    return next((_RATES[word] for word in words if word in rates), None)


def _thing(word: str) -> str | None:
    for things, name in ((_STEPS, "step"), (_SAMPLES, "sample"), (_TOKENS, "token")):
        if word in things:
            return name
    return None


def _duration(words: list[str], after: list[str]) -> Word | None:
    """Return the meaning of a figure with a unit of time or a word for times; None for others."""
    known = frozenset(words)
    unit_s = _unit_of(after, words)
    if unit_s is None and not known & _TIMES:
        if known and known <= _DATA | _DATA_PARTS and known & {*_DATA, "generator"}:
            return Word("data", order=2)
        return Word("part") if known and known <= _PARTS else None
    mean = bool(known & _MEANS)
    if known & _DATA or (known & _WAITS and known <= _DATA_PARTS | _WAITS | _TIMES | _MEANS):
        return Word("data", unit_s, is_mean=mean)
    if known & _PARTS and not known & {"iteration", "step", "iter"}:
        return Word("part", unit_s, is_mean=mean)
    # ``step: 5 s`` is no counter, ``step 5`` is.
    is_step = bool(known & _STEPS) or bool(frozenset(after) & _STEPS)
    if known & _TRAINS:
        return None
    return Word("time", unit_s, 0 if is_step else 1, is_mean=mean)


def _unit_of(after: list[str], words: list[str]) -> float | None:
    """Return the unit of a time, in seconds, by the words after it, else by its name."""
    return next((_UNITS[word] for word in (*after, *reversed(words)) if word in _UNITS), None)


def _counter(words: list[str]) -> Word:
    known = frozenset(words)
    last = words[-1] if words else ""
    if known & {"size", "bs"} and known & {"batch", "bs"}:
        return Word("batch", order=0 if known & {"global", "total", "effective"} else 1)
    if last in _EPOCHS:
        return Word("epoch")
    if words in (["up"], ["sen"]):
        # Marian's ``Up. 500 : Sen. 31,873``.
        return Word("step" if last == "up" else "samples")
    if known & _TRAINS and not names_moment(words):
        return Word("trains")
    if last in _STEPS or (len(words) > 1 and words[-2] in _STEPS and last in _INDEX):
        if known & {"total", "max"}:
            return OTHER
        order = 3 if known & _OF_PARTS else 0 if known & _OF_THE_JOB else 1
        if last in {"batch", "batches", "it", "its"}:
            order = max(order, 2)
        return Word("step", order=order)
    if last in _SAMPLES and known & _MEANS:
        return Word("batch")
    if last in _SAMPLES and not known & {"total", "max"}:
        return Word("samples")
    return OTHER


def names_moment(words: Sequence[str]) -> bool:
    """Whether a name is that of another figure and of its step: ``loss at step 5: 2.3``."""
    return len(words) > 2 and words[-1] in _STEPS and words[-2] in ("at", "after")


# -- timers ----------------------------------------------------------------------------------------

_FORWARD, _BACKWARD = _set("forward fwd fw"), _set("backward bwd bw")
_COLLECTIVES = _set("allreduce reduce allgather gather scatter sync comm communication")


class Timer(NamedTuple):
    """The meaning of a timer of a part of a step."""

    #: The stage that it is of, or ``forward``, ``backward``, ``passes`` (both) for parts of compute.
    part: Literal["input", "forward", "backward", "passes", "allreduce", "other"]
    #: Whether a longer timer contains it.
    is_inner: bool = False


@lru_cache(maxsize=1024)
def timer_of(name: str) -> Timer | None:
    """Return the meaning of a timer (``backward-params-all-reduce``); None if it is not known."""
    words = _WORD.findall(name.lower())
    known = frozenset(words)
    first = words[0] if words else ""
    # Times of parts of a step's batch, of pipelines, and of parts of fetching a batch.
    if known & _set("microstep send recv interval iterator broadcast"):
        return None
    if known & _COLLECTIVES:
        return Timer("allreduce", bool(known & _BACKWARD))
    if known & _DATA or {"batch", "generator"} <= known:
        return Timer("input", is_inner=True)
    if first in ("optimizer", "optim", "opt", "step"):
        return Timer("other", len(words) > 1)
    if known & _FORWARD and known & _BACKWARD:
        return Timer("passes")
    if first in _FORWARD and known <= _FORWARD | {"compute"}:
        return Timer("forward")
    if first in _BACKWARD and known <= _BACKWARD | {"compute", "inner"}:
        return Timer("backward", "inner" in known or len(words) > len(known))
    return None


# -- bars ------------------------------------------------------------------------------------------

#: Work besides training, by the start of a word in the label of a bar or the line before it.
OTHER_WORK = re.compile(
    r"\b(?:download|upload|eval|valid|val\b|test|(?:pre-?)?load(?!er)|sav(?:e|ing)|check|pars|tokeni|fetch"
    r"|predict|infer|extract|copy|convert|import|shard|compil|comput|warm|resolv|install|cast|prepar"
    r"|preprocess|cach|build|creat|quanti|calibrat|render|collat|unpack|verif|merg|sanity|rollout"
    r"|map(?:ping)?\b|(?:read|sampl|encod|decod|index|search|scor|collect|pack|scan|process)ing"
    r"|(?:generat|writ|filter|group)(?:e|ing)|class images)"
    r"|^(?!.*\btrain).*\b(?:denois|dd[ip]m|sampl(?:er|es?)\b|plot|visuali|fid\b|psnr|ssim|metric|inpaint)"
)
#: Words of a training in the label of a bar.
OF_TRAINING = re.compile(r"\b(?:train|epoch|iter|step|updat|fit|finetun|fine.tun|loss|batch)")

# -- timestamps ------------------------------------------------------------------------------------

_YEAR = r"(?P<year>[12]\d\d\d)"
# Also ``10.22.03``.
_TIME = TIME.replace(r"\d:\d", r"\d[:.]\d")
#: Timestamps anywhere at the start of a line, as regular expressions with named groups.
DATES = (
    CTIME.decode(),
    rf"{_YEAR}[-/.]?(?P<month>\d\d)[-/.]?(?P<day>\d\d)[-T,_: ]{{1,2}}{_TIME}",
    rf"(?P<month>\d\d)[-/](?P<day>\d\d)[-/]{_YEAR}[-T,_: ]{{1,2}}{TIME}",
    rf"(?<![\d/-])(?P<month>\d\d)[-/](?P<day>\d\d)[-T,_: ]{{1,2}}{TIME}",
)
_DATE = re.compile(rf"(?<![\w.]){DATED_MOMENT}")
_OTHER_DATES = re.compile(
    "|".join(re.sub(r"\?P<\w+>", "?:", form) for form in (*DATES, *DATES_BY_ORDER.values()))
)
#: The start of a line in which its timestamp is.
DATE_BYTES = 160
#: Times of day and durations, also in words (``1h 02m 33s``), for Python's ``re`` and for RE2.
CLOCK = (
    r"(?:(?:\d{1,4} ?h(?:ours?|rs?)?,? ?)?\d{1,4} ?m(?:in(?:ute)?s?)?,? ?\d{1,2}(?:\.\d{1,9})? ?s"
    r"(?:ec(?:ond)?s?)?|(?:\d{1,4} days?,? ?)?\d{1,4}:\d\d(?::\d\d)?(?:\.\d{1,9})?)"
)
#: Their parts.
CLOCK_PARTS = (
    r"^(?:(?P<days>\d{1,4}) days?,? ?)?(?:(?P<hours>\d{1,4})(?::| ?h[a-z]*,? ?))?"
    r"(?P<minutes>\d{1,4})(?::| ?m[a-z]*,? ?)(?P<seconds>\d{1,2}(?:\.\d{1,9})?)(?: ?s.*)?$"
)

#: A time of day or a duration, with some words before it.
A_TIME = re.compile(
    rb"(?i)[^\r\n]{0,40}(?<![\d.])(?:\d{1,4}[:.h]\d\d(?::\d\d\b|\.\d\d\b|m\b)"
    rb"|\d{1,9}(?:\.\d{1,9})? ?(?:m?s|secs?|seconds?|min|minutes?|hours?)\b)"
)


def after_date(text: str) -> int:
    """Return where a line goes on after the last timestamp near its start."""
    dates = [*_DATE.finditer(text[:DATE_BYTES]), *_OTHER_DATES.finditer(text[:DATE_BYTES])]
    ends = (match.end() for match in dates)
    return max((end for end in ends if text[end:].strip(" )]|")), default=0)
