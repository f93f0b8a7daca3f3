"""Archives of logs are read as folders, whatever is in them."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import tarfile
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from stallscope.catalogue.collecting import collect
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.files import Files
from stallscope.collector.sources.source import SourceFile
from stallscope.errors import StallscopeError, UnreadableError
from stallscope.parsers import read
from stallscope.parsers.files import archives, unpacking, with_members
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.run import Run

KERAS = (
    "Epoch 1/2\n5/5 - {0}s - loss: 1.0 - 700ms/step\n"
    "Epoch 2/2\n5/5 - {0}s - loss: 1.0 - 700ms/step\n"
)
ENDINGS = ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "tar.zst", "zip"]


def tree(folder: Path) -> Path:
    """Write the outputs of three ranks, as horovodrun does."""
    for rank in range(3):
        (folder / f"1/rank.{rank}").mkdir(parents=True)
        (folder / f"1/rank.{rank}/stdout").write_text(KERAS.format(3 + rank))
        (folder / f"1/rank.{rank}/stderr").write_text("")
    return folder


def packed(path: Path, names: Iterable[tuple[str, bytes]]) -> Path:
    """Make an archive of the kind that its name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in names:
                archive.writestr(name, data)
        return path
    plain = io.BytesIO()
    kind = {".gz": "gz", ".tgz": "gz", ".bz2": "bz2", ".xz": "xz"}.get(path.suffix, "")
    with tarfile.open(fileobj=plain, mode=f"w:{kind}") as tar:
        for name, data in names:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = plain.getvalue()
    path.write_bytes(pa.compress(data, "zstd", asbytes=True) if path.suffix == ".zst" else data)
    return path


def files_in(folder: Path) -> list[tuple[str, bytes]]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in paths]


def listed(path: Path) -> list[SourceFile]:
    source = Files(str(path))
    return with_members(source.files(), local=True)


def bytes_or_sentence(file: SourceFile) -> bytes | None:
    """Read a file; None if it says in a sentence why it cannot be read."""
    try:
        return file.read()
    except UnreadableError as error:
        message = str(error)
    assert "\n" not in message
    return None


def same(first: Run, second: Run) -> bool:
    return bool(first.ranks == second.ranks and first.intervals == second.intervals)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_archive_is_the_same_run_as_its_folder(ending: str, tmp_path: Path) -> None:
    folder = tree(tmp_path / "plain")
    (plain,) = read(str(folder))
    path = packed(tmp_path / f"logs.{ending}", files_in(folder))
    (run,) = read(str(path))
    assert same(run, plain)
    assert run.ranks == [0, 1, 2]
    assert run.logs[0].path == f"logs.{ending}/1/rank.0/stdout"


def test_archives_of_hosts_in_a_folder_are_read_with_the_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    packed(
        folder / "one.tgz", [(f"rank.{rank}/stdout", KERAS.format(3).encode()) for rank in (0, 1)]
    )
    packed(
        folder / "two.zip", [(f"rank.{rank}/stdout", KERAS.format(4).encode()) for rank in (0, 1)]
    )
    (folder / "train.log").write_text(KERAS.format(5))
    assert sorted(run.ranks for run in read(str(folder))) == [[0], [0, 1], [0, 1]]


@pytest.mark.parametrize("ending", ["tar.gz", "zip"])
def test_it_is_inspected_and_collected_like_a_folder(ending: str, tmp_path: Path) -> None:
    path = packed(tmp_path / f"logs.{ending}", files_in(tree(tmp_path / "plain")))
    seen = inspect(str(path))
    assert [file.path for file in seen.files if file.used] == [
        f"logs.{ending}/1/rank.{rank}/stdout" for rank in range(3)
    ]
    (run,) = seen.runs
    assert (run.ranks, run.epochs) == (3, 2)
    collected = collect([open_source(str(path))], tmp_path / "store")
    ((stored, _),) = collected.runs
    assert stored.ranks == [0, 1, 2]
    assert collect([open_source(str(path))], tmp_path / "store").unchanged


def test_an_archive_at_another_place_is_read_too(tmp_path: Path) -> None:
    path = packed(tmp_path / "logs.tar.gz", files_in(tree(tmp_path / "plain")))
    members = with_members(Files(str(path)).files(), local=False)
    assert [file.read() for file in members] == [data for _, data in files_in(tmp_path / "plain")]
    # What executors get is where it is, not what is in it.
    noise = packed(tmp_path / "noise.tar.gz", [("a.log", os.urandom(1 << 20))])
    (file,) = with_members(Files(str(noise)).files(), local=False)
    sent = pickle.dumps(file)
    assert len(sent) < 10_000
    assert pickle.loads(sent).read() == file.read()


@pytest.mark.parametrize("ending", ENDINGS)
def test_members_are_read_in_any_order_by_any_thread_and_elsewhere(
    ending: str, tmp_path: Path
) -> None:
    names = [(f"{number}.log", os.urandom(1000 + number)) for number in range(40)]
    files = listed(packed(tmp_path / f"logs.{ending}", names))
    contents: dict[str, bytes] = {}

    def read_all(part: list[SourceFile]) -> None:
        contents.update({file.name: file.read() for file in part})

    threads = [threading.Thread(target=read_all, args=(files[::-1][at::4],)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [contents[file.name] for file in files] == [data for _, data in names]
    sent: SourceFile = pickle.loads(pickle.dumps(files[7]))
    assert sent.read() == names[7][1]
    assert sent.read(10, 20) == names[7][1][10:20]
    assert sent.read(990) == names[7][1][990:]
    assert sent.read(2000, 3000) == b""


def links_and_devices(path: Path) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, kind in (
            ("link.log", tarfile.SYMTYPE),
            ("hard.log", tarfile.LNKTYPE),
            ("pipe.log", tarfile.FIFOTYPE),
            ("device.log", tarfile.CHRTYPE),
            ("folder", tarfile.DIRTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)


def links_in_a_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("link.log")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
        archive.mkdir("folder")


@pytest.mark.parametrize(
    ("name", "write"), [("logs.tar.gz", links_and_devices), ("logs.zip", links_in_a_zip)]
)
def test_links_and_devices_are_no_files(
    name: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path / name)
    assert listed(tmp_path / name) == []


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "zip"])
def test_names_never_lead_out_of_the_archive(ending: str, tmp_path: Path) -> None:
    names = [
        "../../up.log",
        "/etc/passwd",
        "a/../../b.log",
        "..\\..\\c.log",
        "./d.log",
        "..",
        "e\n.log",
    ]
    path = packed(tmp_path / f"logs.{ending}", [(name, b"text") for name in names])
    assert [file.name.removeprefix(f"{path.name}/") for file in listed(path)] == [
        *("up.log", "etc/passwd", "a/b.log", "c.log", "d.log", "unnamed", "e\ufffd.log")
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_empty_one_has_no_logs(ending: str, tmp_path: Path) -> None:
    path = packed(tmp_path / f"logs.{ending}", [])
    assert listed(path) == []
    with pytest.raises(StallscopeError, match="no logs in an empty folder"):
        read(str(path))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("data", [b"", b"text " * 500, b"\0" * 100], ids=["empty", "text", "zeros"])
def test_what_is_none_says_so_in_a_sentence(ending: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"logs.{ending}"
    path.write_bytes(data)
    for file in listed(path):
        with pytest.raises(UnreadableError) as error:
            file.read()
        assert str(error.value).startswith(f"{path}: ")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_comes_before_damage_is_read(ending: str, tmp_path: Path) -> None:
    names = [
        (f"rank.{rank}/stdout", KERAS.format(3).encode() + os.urandom(9000)) for rank in (0, 1, 2)
    ]
    path = packed(tmp_path / f"logs.{ending}", names)
    whole = path.read_bytes()
    for until in range(0, len(whole), 701):
        path.write_bytes(whole[:until])
        for file in listed(path):
            assert bytes_or_sentence(file) in [None, *(content for _, content in names)]
    flipped = bytearray(whole)
    for at in range(100, len(whole), 500):
        flipped[at] ^= 0xFF
    path.write_bytes(flipped)
    for file in listed(path):
        bytes_or_sentence(file)


def test_a_truncated_one_gives_a_run_and_a_warning(tmp_path: Path) -> None:
    noise = [("noise.bin", os.urandom(1 << 20))]
    path = packed(tmp_path / "logs.tar.gz", [*files_in(tree(tmp_path / "plain")), *noise])
    path.write_bytes(path.read_bytes()[: 1 << 19])
    (run,) = read(str(path))
    assert run.ranks == [0, 1, 2]
    assert [(problem.where, problem.what) for problem in run.problems] == [
        ("logs.tar.gz/noise.bin", "the archive is truncated"),
        ("logs.tar.gz", "unexpected end of data"),
    ]


def test_encrypted_members_and_archives_within_say_so(tmp_path: Path) -> None:
    path = packed(tmp_path / "logs.zip", [("a.log", b"text"), ("inner.tar.gz", b"text")])
    data = bytearray(path.read_bytes())
    # The flag that a member is encrypted, where it starts and in the list.
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    encrypted, inner = listed(path)
    with pytest.raises(UnreadableError, match=r"logs\.zip/a\.log: it is encrypted"):
        encrypted.read()
    with pytest.raises(UnreadableError, match=r"inner\.tar\.gz: it is an archive in an archive"):
        inner.read()


def huge_member(path: Path) -> None:
    """Write a tar whose only member is said to have an exbibyte."""
    info = tarfile.TarInfo("huge.log")
    info.size = 1 << 60
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)


def huge_header(path: Path) -> None:
    """Write a tar whose description of a member is said to have 4 GiB."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 4 << 30
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)


def huge_zip(path: Path) -> None:
    """Write a zip whose only member is said to have 3 GiB."""
    packed(path, [("huge.log", b"text")])
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (3 << 30).to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "write"), [("a.tar", huge_member), ("b.tar", huge_header), ("c.zip", huge_zip)]
)
def test_declared_sizes_fill_no_memory(
    name: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path)
    tracemalloc.start()
    try:
        files = listed(path)
        assert files
        for file in files:
            with pytest.raises(UnreadableError):
                file.read()
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", ["tar.gz", "zip"])
def test_bombs_end_at_a_limit(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_MOST_BYTES", 1 << 20)
    names = [
        ("0.log", b"text"),
        *((f"{number}.log", b"\0" * (400 << 10)) for number in (1, 2, 3, 4)),
    ]
    files = listed(packed(tmp_path / f"logs.{ending}", names))
    assert files[0].read() == b"text"
    with pytest.raises(UnreadableError, match="unpacks to more than 1 MiB"):
        files[-1].read()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "data",
    [b"", b"<html>not found</html>", gzip.compress(b"text", mtime=0), bytes(range(1, 256)) * 9],
)
def test_what_is_no_archive_is_said_in_a_sentence(ending: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"logs.{ending}"
    path.write_bytes(data)
    with pytest.raises(UnreadableError) as caught:
        read(str(path))
    assert str(caught.value) == f"{path}: this is not a readable {ending} archive"


def test_more_members_than_logs_have_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 3)
    files = listed(packed(tmp_path / "logs.tar", [(f"{at}.log", b"text") for at in range(5)]))
    assert [file.name for file in files] == [*(f"logs.tar/{at}.log" for at in range(3)), "logs.tar"]
    with pytest.raises(UnreadableError, match="more than 3 files; unpack it"):
        files[-1].read()


def test_the_last_member_of_a_name_counts(tmp_path: Path) -> None:
    files = listed(packed(tmp_path / "logs.tar", [("a.log", b"old"), ("a.log", b"new")]))
    assert [file.read() for file in files] == [b"new"]


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "zip"])
def test_files_have_the_date_that_the_archive_says(tmp_path: Path, ending: str) -> None:
    lines = "".join(
        f"I0901 00:19:{at:02}.000000 47 keras_utils.py:93] step = {at}, time_taken = 1.000000\n"
        for at in range(9)
    ).encode()
    path = tmp_path / f"logs.{ending}"
    if ending == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo("out.log", (2019, 9, 1, 5, 38, 0)), lines)
    else:
        with tarfile.open(path, "w:gz" if ending == "tar.gz" else "w") as tar:
            info = tarfile.TarInfo("out.log")
            info.size, info.mtime = len(lines), 1_567_316_280
            tar.addfile(info, io.BytesIO(lines))
    (run,) = read(str(path))
    assert run.fact("began_local").startswith("2019-09-01")
    alone = tmp_path / "out.log.gz"
    alone.write_bytes(gzip.compress(lines, mtime=1_567_316_280))
    (run,) = read(str(alone))
    assert run.fact("began_local").startswith("2019-09-01")
    (seen,) = inspect(str(alone)).files
    assert seen.span is not None
    assert seen.span.begin.startswith("2019-09-01")
