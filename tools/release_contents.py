"""Check a release's contents: everything the package needs, and no tests.

python release_contents.py SDIST WHEEL [URL]

With the repository's URL, the package must have links to it, and its README no relative ones.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from release_links import RELATIVE

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
        return [member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()]


def problems(archive: Path) -> list[str]:
    """Return a sentence for each problem of an archive."""
    names = names_in(archive)
    sentences = [
        f"{name} must not be in {archive.name}"
        for name in names
        if LEFT_OUT & set(PurePosixPath(name).parts[:-1])
        or PurePosixPath(name).name.startswith(("test_", "conftest"))
    ]
    sentences += [
        f"{archive.name} has no {needed}"
        for needed in NEEDED
        if not any(name.endswith(needed) for name in names)
    ]
    return sentences


def missing_links(wheel: Path, url: str) -> list[str]:
    """List what is wrong with the links of a wheel to its repository, a sentence each."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    sentences = []
    if f"Project-URL: Homepage, {url}\n" not in metadata:
        sentences.append(f"{wheel.name} has no link to {url}")
    sentences += [
        f"the README in {wheel.name} has the relative link {link['path']}"
        for link in RELATIVE.finditer(metadata)
    ]
    return sentences


def main() -> None:
    archives = [Path(word) for word in sys.argv[1:3]]
    kinds = [path.suffix for path in archives]
    sentences = [problem for path in archives for problem in problems(path)]
    if kinds != [".gz", ".whl"]:
        sentences.append(
            f"a release is one sdist and one wheel, not {', '.join(map(str, archives))}"
        )
    elif len(sys.argv) > 3:
        sentences += missing_links(archives[1], sys.argv[3].rstrip("/"))
    sys.exit("\n".join(sentences) or None)


if __name__ == "__main__":
    main()
