"""Check every file of collected runs against its checksum."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.filesize import decimal

from stallscope.catalogue.checking import CheckResult, bytes_of, check_run, check_store
from stallscope.catalogue.index import folders_of, is_store
from stallscope.collector.store.layout import BytesRead
from stallscope.collector.store.manifests import is_collected
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.lists import counted
from stallscope.formatting.plain import plain

from .main import FAILED, SUCCESS
from .progress_bars import show_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        nargs="+",
        metavar="STORE|RUN",
        type=_folder,
        help="a store in a folder, or the folder of a collected run",
    )


def _folder(text: str) -> Path:
    if "://" in text:
        raise UsageError(f"{text}: copy the store, or the run, into a folder to check it")
    return Path(text)


def run(options: argparse.Namespace) -> int:
    for place in options.places:
        if not is_collected(place) and not is_store(place):
            raise NotFoundError(f"{place}: neither a store nor a collected run")
    damaged = False
    with show_bytes("checking", sum(map(_bytes_at, options.places))) as advance:
        for checked in _checked(options.places, advance):
            damaged |= bool(checked.damage)
            _print_checked(checked)
    return FAILED if damaged else SUCCESS


def _checked(places: Iterable[Path], advance: BytesRead) -> Iterator[CheckResult]:
    for place in places:
        if is_collected(place):
            yield check_run(place, advance)
        else:
            yield from check_store(place, advance)


def _bytes_at(place: Path) -> int:
    if is_collected(place):
        return bytes_of(place)
    return sum(bytes_of(place / name) for name in folders_of(place))


def _print_checked(checked: CheckResult) -> None:
    where = plain(checked.where)
    for sentence in checked.damage:
        print(f"{where}: damaged: {plain(sentence)}")
    if checked.manifest is not None and not checked.damage:
        print(f"{where}: ok, {counted(checked.files, 'file')}, {decimal(checked.bytes)}")
    for note in checked.notes:
        print(f"{where}: note: {plain(note)}")
