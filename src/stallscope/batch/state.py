"""What a folder of reports holds already: a batch goes on where it was stopped, and makes again what has
changed.

    OUT/.stallscope-reports.jsonl    one JSON object per line, only appended to while a batch runs:
                                     what was seen where, files that are about to be written, then
                                     what they are about

Nothing in it names a place: keys are hashes, hosts are counted. A line that is torn is skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stallscope.conditions import Outcome
from stallscope.reports.index.line import Line
from stallscope.reports.write import write_texts, writing

from .run_summary import Sketch, sketched

STATE = ".stallscope-reports.jsonl"
_VERSION = 1
_INDEX = "index"
_NOT_AS_WRITTEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Seen:
    """What was in a place when its files had this fingerprint."""

    fingerprint: str
    content: Sketch


@dataclass(frozen=True)
class Written:
    """Reports that are there."""

    #: Changes with the run, what it was held against, the options and the version.
    made: str
    line: Line
    #: Names, each with size and time of its last change in nanoseconds.
    files: Mapping[str, tuple[int, int]]
    anonymous: bool
    #: What became of the conditions of ``--fail-if``.
    checked: tuple[Outcome, ...]


class State:
    """What batches have written into a folder."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._path = out / STATE
        self._seen: dict[str, Seen] = {}
        self._written: dict[str, Written] = {}
        self._begun: dict[str, tuple[str, ...]] = {}
        self._index: dict[str, tuple[int, int]] = {}
        for content in _lines(self._path):
            with suppress(*_NOT_AS_WRITTEN):
                self._take(content)

    @property
    def written(self) -> Sequence[Written]:
        """All reports whose files are there."""
        return [one for one in self._written.values() if self._is_there(one)]

    @property
    def stems(self) -> Sequence[str]:
        """Names that the reports of some run have, whether or not they are there."""
        return [one.line.stem for one in self._written.values()]

    def seen(self, place: str) -> Seen | None:
        """What was there when a batch looked last."""
        return self._seen.get(_hashed(place))

    def saw(self, place: str, what: Seen) -> None:
        """Note what is there; it is kept from the next ``tidy`` on."""
        self._seen[_hashed(place)] = what

    def of(self, key: str) -> Written | None:
        """What is known of the reports on a run, whether or not they are there."""
        return self._written.get(_hashed(key))

    def there(self, key: str, made: str) -> Written | None:
        """Just these reports; None where one of them is missing."""
        found = self.of(key)
        return found if found and found.made == made and self._is_there(found) else None

    def still_own(self, written: Written) -> dict[str, tuple[int, int]]:
        """Those of its files that were not changed or removed since."""
        return {
            name: stamp
            for name, stamp in written.files.items()
            if _stamp(self._out / name) == stamp
        }

    def is_own(self, path: Path) -> bool:
        """Whether a batch has written that very file, and it was not changed since."""
        name = path.name
        if any(name in names for names in self._begun.values()):
            return True
        known = [one.files[name] for one in self._written.values() if name in one.files]
        if name in self._index:
            known.append(self._index[name])
        return _stamp(path) in known

    def begin(self, key: str, paths: Sequence[Path]) -> None:
        """Note files before they are written."""
        names = [path.name for path in paths]
        self._append({"begun": _hashed(key), "files": names})

    def finish(self, key: str, written: Written) -> None:
        """Note that they are there."""
        self._append({"run": _hashed(key), **_content(written)})

    def wrote_index(self, paths: Sequence[Path]) -> None:
        self._append({_INDEX: stamps(paths)})

    def tidy(self) -> None:
        """Write the state anew, without what is of no use any more."""
        lines: list[dict[str, Any]] = [{"stallscope_reports": _VERSION}, {_INDEX: self._index}]
        lines += [{"seen": key, **asdict(one)} for key, one in self._seen.items()]
        lines += [{"begun": key, "files": names} for key, names in self._begun.items()]
        lines += [{"run": key, **_content(one)} for key, one in self._written.items()]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_texts([self._path], [text], self._out, force=True)

    def _take(self, content: Mapping[str, Any]) -> None:
        if _INDEX in content:
            self._index |= {name: _pair(stamp) for name, stamp in content[_INDEX].items()}
        elif "seen" in content:
            self._seen[str(content["seen"])] = _seen(content)
        elif "begun" in content:
            self._begun[str(content["begun"])] = tuple(map(str, content["files"]))
        elif "run" in content:
            key = str(content["run"])
            self._written[key] = _written(content)
            self._begun.pop(key, None)

    def _append(self, content: dict[str, Any]) -> None:
        with writing(self._out), self._path.open("a") as file:
            file.write(json.dumps(content) + "\n")
        self._take(content)

    def _is_there(self, one: Written) -> bool:
        return all((self._out / name).is_file() for name in one.files)


def made_of(*parts: object) -> str:
    """The same for reports that would be the same."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def stamps(paths: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """By name, what tells one state of a file from another."""
    found = {path.name: _stamp(path) for path in paths}
    return {name: stamp for name, stamp in found.items() if stamp is not None}


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        texts = path.read_text().splitlines()
    except (OSError, ValueError):
        return
    for text in texts:
        with suppress(*_NOT_AS_WRITTEN):
            content = json.loads(text)
            if isinstance(content, dict):
                yield content


def _seen(content: Mapping[str, Any]) -> Seen:
    sketched(content["content"])
    return Seen(str(content["fingerprint"]), content["content"])


def _written(content: Mapping[str, Any]) -> Written:
    return Written(
        made=str(content["made"]),
        line=Line.read(content["line"]),
        files={str(name): _pair(stamp) for name, stamp in content["files"].items()},
        anonymous=bool(content["anonymous"]),
        checked=tuple(Outcome(held, str(says)) for held, says in content["checked"]),
    )


def _content(one: Written) -> dict[str, Any]:
    return {
        "made": one.made,
        "line": one.line.content,
        "files": one.files,
        "anonymous": one.anonymous,
        "checked": [(outcome.held, outcome.says) for outcome in one.checked],
    }


def _pair(stamp: Sequence[Any]) -> tuple[int, int]:
    size, changed = stamp
    return int(size), int(changed)
