"""Traces that are damaged in every way: what can be read is read, and the rest is named; exit code 2."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import generate

from ddp_audit.cli import main
from ddp_audit.trace.worker import layout


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace") / "trace"
    generate(folder, 3, 60, "none", 1)
    return folder


@pytest.fixture
def folder(trace: Path, tmp_path: Path) -> Path:
    shutil.copytree(trace, tmp_path / "trace")
    return tmp_path / "trace"


def of_rank_1(folder: Path) -> Path:
    return folder / "rank-00001.ddptrace"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:20], "truncated"),
        (lambda data: b"\xff" * len(data), "not a file of the ddp-audit tracer"),
        (lambda data: b"hello", "not a file of the ddp-audit tracer"),
        (lambda data: data[:8] + b"\x63" + data[9:], "written in version 99 of the format; this tool reads version 2"),
    ],
)
def test_a_damaged_file_is_named(damage, words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = of_rank_1(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert main(["diff", str(folder)]) == 2
    said = capsys.readouterr()
    text = " ".join(said.out.split())
    assert text.startswith("The 3 ranks agree in what is recorded; the trace of rank 1 is damaged, so that the rest is not known.")
    assert f"Rank 1: left a trace file that is not readable: {words}" in text
    assert said.err == ""
    for other in (0, 2):  # where nothing can be read
        (folder / f"rank-0000{other}.ddptrace").unlink()
    assert main(["diff", str(folder)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"ddp-audit: {file}: {words}\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[: len(data) // 3], "cut off after 349,525 bytes"),
        (lambda data: data[: data.rindex(b"\2\1", 0, len(data.rstrip(b"\0"))) + 5], "cut off in the middle of a record"),
        (lambda data: _swapped(data), "a record that was changed or moved"),
        (lambda data: _changed(data, 16), "a record that was changed or moved"),
        (lambda data: _changed(data, 4), "a record that was changed or moved"),
    ],
)
def test_what_is_whole_is_read_and_the_rest_named(damage, words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = of_rank_1(folder)
    data = damage(file.read_bytes())
    file.write_bytes(data)
    whole = "cut off after" in words  # the end of its records is there
    assert main(["diff", str(folder)]) == (0 if whole else 2)
    text = " ".join(capsys.readouterr().out.split())
    if not whole:
        assert "the trace of rank 1 is damaged, so that the rest is not known." in text
        assert "Rank 1: has a trace that is read as far as it is whole (" in text and words in text


def _records(data: bytes) -> list[int]:
    """Where the collectives stand."""
    return [at for at in range(layout.HEADER.size, len(data), 32) if data[at] == layout.COLLECTIVE]


def _swapped(data: bytes) -> bytes:
    """Two records that follow each other have changed places: with their own order of indices nothing else shows it."""
    made = bytearray(data)
    at = _records(data)[20]
    made[at : at + 64] = data[at + 32 : at + 64] + data[at : at + 32]
    return bytes(made)


def _changed(data: bytes, place: int) -> bytes:
    made = bytearray(data)
    made[_records(data)[20] + place] ^= 1
    return bytes(made)


@pytest.mark.parametrize("data", [b"", bytes(1 << 20)])
def test_what_others_recorded_is_read_where_one_rank_had_no_room(
    data: bytes, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_rank_1(folder).write_bytes(data)
    assert main(["diff", str(folder)]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("The 3 ranks agree in what is recorded; the run did not end in order.") and said.err == ""
    assert "rank 1: left an empty trace file" in " ".join(said.out.split()).lower()


def test_a_rank_without_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_rank_1(folder).unlink()
    assert main(["diff", str(folder)]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("The 3 ranks agree in what is recorded; the run did not end in order.") and said.err == ""
    of_rank_1(folder).mkdir()
    assert main(["diff", str(folder)]) == 2
    assert "rank 1: left a trace file that is not readable" in " ".join(capsys.readouterr().out.split()).lower()


@pytest.mark.parametrize(
    "files", [{}, {"notes.txt": b"x"}, {"a_0": b"{}", "a_1": b"["}, {"d_0": b"\x80\x04\x95", "d_1": b"garbage"}]
)
def test_a_folder_that_holds_no_trace(files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert main(["diff", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and str(tmp_path) in said.err


@pytest.mark.parametrize("seed", range(25))
def test_changed_bytes_are_at_most_one_line(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    file = draw.choice([of_rank_1(folder), folder / "run.json"])
    data = bytearray(file.read_bytes())
    used = len(data.rstrip(b"\0"))
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(used), draw.choice([1, 4, 8])
        data[at : at + size] = draw.randbytes(size)
    file.write_bytes(data)
    code = main(["diff", str(folder), "--format", draw.choice(["text", "json", "html"])])
    said = capsys.readouterr()
    assert code in (0, 1, 2) and "internal error" not in said.err and said.err.count("\n") == (not said.out)
