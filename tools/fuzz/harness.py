"""Run one target under atheris: ``python -m fuzz.harness TARGET [libFuzzer's arguments]``.

It is a separate process, as libFuzzer ends the process that it runs in.
"""

from __future__ import annotations

import random
import sys

import atheris
import pandas  # noqa: F401  # imported during the first input, it would make that input look slow

with atheris.instrument_imports(include=["stallscope.parsers", "stallscope.collector.recorder"]):
    from fuzz.targets import TARGETS

from fuzz.corpus import kept
from fuzz.mutating import changes

# The share of changes left to libFuzzer, which knows the comparisons that failed.
_BLIND = 0.4


def main() -> None:
    target = sys.argv.pop(1)
    ways = changes(kept(target))

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < _BLIND:
            return bytes(atheris.Mutate(data, most))
        for _ in range(1 + chance.randrange(3)):
            data = chance.choice(ways)(data, chance)[:most]
        return data

    atheris.Setup(sys.argv, lambda data: TARGETS[target](data), custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
