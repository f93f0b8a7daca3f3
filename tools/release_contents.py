"""Check a release's contents: everything the package needs, and no tests.

python release_contents.py SDIST WHEEL
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

#: Folders of the source tree that are not installed.
LEFT_OUT = {"tests", "benchmarks", "tools"}
#: Files that code reads without importing them.
NEEDED = (
    "py.typed",
    "dashboard/assets/stallscope.css",
    "sample_logs/clean/run.json",
)


def names_in(archive: Path) -> list[str]:
    """List the files of an sdist without its top folder, or of a wheel."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as sdist:
        return [one.name.partition("/")[2] for one in sdist.getmembers() if one.isfile()]


def problems(archive: Path) -> list[str]:
    """Return a sentence for each problem of an archive."""
    names = names_in(archive)
    found = [
        f"{name} must not be in {archive.name}"
        for name in names
        if LEFT_OUT & set(PurePosixPath(name).parts[:-1])
        or PurePosixPath(name).name.startswith(("test_", "conftest"))
    ]
    found += [
        f"{archive.name} has no {needed}"
        for needed in NEEDED
        if not any(name.endswith(needed) for name in names)
    ]
    return found


def main() -> None:
    archives = [Path(word) for word in sys.argv[1:]]
    kinds = sorted(path.suffix for path in archives)
    found = [problem for path in archives for problem in problems(path)]
    if kinds != [".gz", ".whl"]:
        found.append(f"a release is one sdist and one wheel, not {', '.join(map(str, archives))}")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
