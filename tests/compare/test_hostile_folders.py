"""Folders that nobody's tracer wrote: pipes and devices, absurd numbers, JSON of any shape, pickles of others, zeroed and moved
records. A report or one line, in little time and memory, and never an internal error."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import generate

from ddp_audit.trace.worker import layout

MEMORY = 3 << 30
CALL = "import sys; from ddp_audit.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace") / "trace"
    generate(folder, 3, 60, "none", 1)
    return folder


@pytest.fixture
def folder(trace: Path, tmp_path: Path) -> Path:
    shutil.copytree(trace, tmp_path / "trace")
    return tmp_path / "trace"


def diff(folder: Path, *more: str) -> tuple[int, str, str]:
    """Exit code and output of the command, which has bounds of memory and time."""
    outcome = subprocess.run(
        [sys.executable, "-c", CALL, "diff", str(folder), *more],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    said = outcome.stdout + outcome.stderr
    assert "internal error" not in said and "Traceback" not in said, said
    return outcome.returncode, outcome.stdout, outcome.stderr


def is_read_without_description(folder: Path, words: str) -> None:
    """What run.json cannot say is said, and the ranks are compared."""
    code, out, err = diff(folder)
    assert (code, err) == (2, "")
    text = " ".join(out.split())
    assert text.startswith("The 3 ranks agree in ") and "collectives. run.json " in text and words in text, text
    code, out, err = diff(folder, "--format", "json")
    assert words in json.loads(out)["damage"] and (code, err) == (2, "")
    for form in ("html", "text"):
        assert diff(folder, "--format", form)[0] == 2


def one_line(folder: Path, words: str) -> None:
    code, out, err = diff(folder)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert words in err


@pytest.mark.parametrize("name", ["run.json", "rank-00001.ddptrace"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_not_waited_for(name: str, kind: str, folder: Path) -> None:
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    if name == "run.json":
        is_read_without_description(folder, "cannot be read: not a plain file: which command was run")
        return
    code, out, err = diff(folder)
    assert (code, err) == (2, "")
    assert "Rank 1: left a trace file that is not readable: not a plain file." in " ".join(out.split())


def test_a_pipe_beside_the_trace(folder: Path) -> None:
    for name in ("stderr.log", "rank-00000.stacks", "rank-00007.stacks"):
        os.mkfifo(folder / name)
    assert diff(folder)[0] == 0


META: list[tuple[Callable[[dict[str, object]], object], str]] = [
    (lambda meta: {**meta, "world_size": 10**9}, "a run of 1000000000 ranks"),
    (lambda meta: {**meta, "world_size": -3}, "a run of -3 ranks"),
    (lambda meta: {**meta, "world_size": "many"}, "world_size is str"),
    (lambda meta: {**meta, "cwd": ["a"]}, "cwd is list"),
    (lambda meta: {**meta, "killed_ranks": {"0": 1}, "nodes": 3, "start": "now"}, "killed_ranks is dict"),
    (lambda meta: [meta], "is not an object"),
    (lambda meta: "run", "is not an object"),
]


@pytest.mark.parametrize(("change", "words"), META, ids=[words for _, words in META])
def test_what_run_json_cannot_say(change: Callable[[dict[str, object]], object], words: str, folder: Path) -> None:
    file = folder / "run.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    is_read_without_description(folder, words)


def test_deep_json(folder: Path, tmp_path: Path) -> None:
    deep = "[" * 200_000
    (folder / "run.json").write_text(deep)
    is_read_without_description(folder, "cannot be read")
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    (dumps / "dump_0").write_text('{"pg_config": ' + deep)
    one_line(dumps, "dump_0: damaged")


DUMP = {"version": "2.4", "pg_config": {}, "pg_status": {}, "entries": []}


def test_dumps_that_time_stamps_name(tmp_path: Path) -> None:
    (tmp_path / "dump_1764582000").write_bytes(pickle.dumps(DUMP))
    one_line(tmp_path, "whose name does not end with its rank")
    (tmp_path / "dump_1764582000").unlink()
    (tmp_path / "dump_0").write_bytes(
        pickle.dumps({**DUMP, "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 4000000000]"}}})
    )
    one_line(tmp_path, "dump_0: damaged")


def test_other_files_beside_dumps(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps({**DUMP, "rank": rank}))
    alone = diff(tmp_path, "--format", "json")
    (tmp_path / "config").write_bytes(pickle.dumps(Path("a")))
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(8 << 30)
    os.mkfifo(tmp_path / "pipe")
    assert diff(tmp_path, "--format", "json") == alone


def records_of(file: Path) -> tuple[bytearray, int]:
    data = bytearray(file.read_bytes())
    return data, len(bytes(data).rstrip(b"\0")) // layout.RECORD_SIZE


def zero(data: bytearray, used: int, draw: random.Random) -> None:
    at, count = draw.randrange(3, used), draw.choice([1, 2, 40])
    data[at * 32 : (at + count) * 32] = bytes(len(data[at * 32 : (at + count) * 32]))


def move(data: bytearray, used: int, draw: random.Random) -> None:
    here, there = draw.randrange(3, used), draw.randrange(3, used)
    data[here * 32 : here * 32 + 32], data[there * 32 : there * 32 + 32] = (
        data[there * 32 : there * 32 + 32],
        data[here * 32 : here * 32 + 32],
    )


def stretch(data: bytearray, used: int, draw: random.Random) -> None:
    data += bytes(layout.CHUNK * draw.randint(1, 30))


def change_text(data: bytearray, used: int, draw: random.Random) -> None:
    parts = [at for at in range(2, used) if data[at * 32] == layout.DEFINITION]
    at = draw.choice(parts) * 32
    data[at + 12 + draw.randrange(20)] = draw.choice(b'[]{}":,019-eE')


def change_number(data: bytearray, used: int, draw: random.Random) -> None:
    at = draw.randrange(2, used) * 32 + draw.choice([1, 2, 4, 8, 12, 16, 24])
    data[at : at + 4] = draw.choice([b"\xff\xff\xff\xff", b"\0\0\0\x80", draw.randbytes(4)])


SPOILERS = (zero, move, stretch, change_text, change_number)


def spoil(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 3)):
        file = folder / f"rank-{draw.randrange(3):05d}.ddptrace"
        data, used = records_of(file)
        draw.choice(SPOILERS)(data, used, draw)
        file.write_bytes(data)


@pytest.mark.parametrize("piece", range(4))
def test_spoiled_records_are_told_or_passed_over(
    piece: int, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ddp_audit.cli import main

    for seed in range(piece * 25, piece * 25 + 25):
        folder = tmp_path / str(seed)
        shutil.copytree(trace, folder)
        spoil(folder, seed)
        code = main(["diff", str(folder), "--format", random.Random(seed).choice(["text", "json", "html"])])
        said = capsys.readouterr()
        assert code in (0, 1, 2) and "internal error" not in said.err, (seed, said.err)
        assert said.err.count("\n") <= 1, (seed, said.err)
        shutil.rmtree(folder)


@pytest.mark.nightly
@pytest.mark.parametrize("piece", range(100, 140))
def test_more_spoiled_records(piece: int, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test_spoiled_records_are_told_or_passed_over(piece, trace, tmp_path, capsys)


def test_a_hole_as_large_as_a_chunk_is_not_read_over(folder: Path) -> None:
    file = folder / "rank-00001.ddptrace"
    with file.open("r+b") as stream:
        stream.truncate(1 << 40)  # a hole that no disk holds
    code, out, err = diff(folder)
    assert (code, err) == (2, "")
    assert "The trace of rank 1 is damaged after its end: damaged at byte" in " ".join(out.split())
