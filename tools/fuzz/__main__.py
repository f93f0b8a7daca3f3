"""Fuzz every target for its share of the time, and print the failures.

    PYTHONPATH=tools:tests python -m fuzz [--seconds 60] [--only TARGET…] [--keep]

Inputs found so far are in .stallscope/fuzz/corpus, and inputs that break a target in
.stallscope/fuzz/broken: replay one with ``python -m fuzz.harness TARGET FILE``. An input breaks a
target that raises an error other than Stallscope's, or takes more than twenty seconds or 2 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from support.parser_contract import SAMPLES

from .corpus import keep, kept
from .fewest import fewest
from .targets import TARGETS

_FOUND = Path(".stallscope/fuzz")
_LONGEST_INPUT = 4096
_LIMITS = (f"-max_len={_LONGEST_INPUT}", "-timeout=20", "-rss_limit_mb=2048")
# Atheris itself takes more memory with each input that it runs: a process ends after this time, or at
# the limit of memory. If its last input passes alone, the memory was not the target's.
_ROUND_SECONDS = 120
_OUT_OF_MEMORY = 71
# The part of a broken target's output that shows why.
_LAST_CHARACTERS = 3000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="in total")
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument(
        "--keep",
        action="store_true",
        help="put a minimal set of inputs with the same coverage into tools/fuzz",
    )
    options = parser.parse_args()
    share = max(1, options.seconds // len(options.only))
    broken = [target for target in options.only if not _fuzz(target, share)]
    if options.keep:
        for target in options.only:
            _keep(target)
    print(f"broken: {', '.join(broken)} (see {_FOUND / 'broken'})" if broken else "nothing broke")
    return 1 if broken else 0


def _fuzz(target: str, seconds: int) -> bool:
    """Fuzz one target; return whether it did not break."""
    corpus, broken = _FOUND / "corpus" / target, _FOUND / "broken" / target
    for folder in (corpus, broken):
        folder.mkdir(parents=True, exist_ok=True)
    for data in _seeds(target):
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    until, count = time.monotonic() + seconds, 0
    while (left := round(until - time.monotonic())) > 0:
        limits = (*_LIMITS, f"-max_total_time={min(left, _ROUND_SECONDS)}")
        ended = _harness(target, *limits, f"-artifact_prefix={broken}/", str(corpus))
        runs = re.findall(r"Done (\d+) runs|^#(\d+)", ended.stderr, re.MULTILINE)
        count += next((int(done or at) for done, at in reversed(runs)), 0)
        if ended.returncode == _OUT_OF_MEMORY and _all_pass(target, broken.glob("oom-*")):
            continue
        if ended.returncode != 0:
            print(f"{target}: {count} inputs, broken", flush=True)
            print((ended.stdout + ended.stderr)[-_LAST_CHARACTERS:], flush=True)
            return False
    print(f"{target}: {count} inputs, fine", flush=True)
    return True


def _all_pass(target: str, inputs: Iterable[Path]) -> bool:
    """Run inputs alone, each in a process of its own; remove those that pass."""
    all_pass = True
    for path in inputs:
        if _harness(target, *_LIMITS, str(path)).returncode == 0:
            path.unlink()
        else:
            all_pass = False
    return all_pass


def _seeds(target: str) -> list[bytes]:
    """Return the kept inputs, and the complete log of the parsers' tests."""
    sample = SAMPLES.get(target)
    if sample is None:
        return kept(target)
    with TemporaryDirectory() as folder:
        return [*kept(target), sample(Path(folder))]


def _keep(target: str) -> None:
    candidates = [path.read_bytes() for path in (_FOUND / "corpus" / target).iterdir()]
    inputs = fewest(TARGETS[target], candidates)
    path = keep(target, inputs)
    print(
        f"{path}: {len(inputs)} of {len(candidates)} inputs, {path.stat().st_size} bytes",
        flush=True,
    )


def _harness(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz.harness", target, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
