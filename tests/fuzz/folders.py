"""Folders of traces and of dumps that somebody has spoiled: other things in the place of files, absurd names and numbers, JSON of any
shape in descriptions and definitions, other pickles, changed and moved records."""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import generate

from ddp_audit import events
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring

RANKS = 3
FILES = (
    "run.json", "rank-00000.ddptrace", "rank-00001.ddptrace", "rank-00001.ddptrace.0", "rank-00002.ddptrace", "rank-00000.stacks",
    "stderr.log", "stderr-1.log", "saved", "dump-request", "run.lock", "prediction.json", "dump_2",
)  # fmt: skip
NAMES = (
    "rank-4000000000.ddptrace", "rank--1.ddptrace", "rank-00000000001.ddptrace", "rank-٣.ddptrace", "rank-.ddptrace", "rank-1.ddptrace",
    "rank-00001.ddptrace.99999999999999999999", "rank-00001.ddptrace.-1", "\udcff", "dump_99999999999", "dump_", "dump_1764582000", "x_0",
)  # fmt: skip
KINDS = (
    events.START,
    events.GROUP,
    events.WRAP,
    events.EXIT,
    events.EXCEPTION,
    events.STEP,
    events.SAMPLES,
    events.SCHEDULER,
    "new",
)
KEYS = (
    "rank", "world_size", "pid", "host", "ticks", "thread", "cwd", "run", "restart", "action", "name", "ranks", "range", "desc", "model",
    "parameters", "code", "type", "text", "done", "sends", "receives", "async", "peer", "tag", "epoch", "share", "samples", "optimizer",
)  # fmt: skip
_EXCHANGE = ("op", "call", "group", "origin", "numel", "dtype", "shape", "root", "reduce_op", "async", "stack", "sends", "receives")


@lru_cache(maxsize=1)
def _trace() -> dict[str, bytes]:
    """The files of a small trace."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), RANKS, 60, "none", 1)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def value(random: Random, depth: int = 0) -> Any:
    """JSON of any shape."""
    plain: list[Callable[[], Any]] = [
        lambda: None, lambda: random.random() < 0.5, lambda: random.choice([0, -1, 2, 10**9, 10**30, -(2**63)]),
        lambda: random.choice([0.5, 1e308, float("nan"), float("-inf")]),
        lambda: random.choice(["", "default", "gloo", "\x00", "\ud800", "a\n\x1b[31m", "x" * 3000]),
    ]  # fmt: skip
    if depth > 3 or random.random() < 0.5:
        return random.choice(plain)()
    if random.random() < 0.5:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(KEYS): value(random, depth + 1) for _ in range(random.randrange(4))}


def _replace(folder: Path, random: Random) -> str:
    """Something else in the place of a file."""
    path = folder / random.choice(FILES)
    if path.is_dir() and not path.is_symlink():
        return f"{path.name} is a folder already"
    path.unlink(missing_ok=True)
    kind = random.choice(
        ["pipe", "zero", "full", "folder", "loop", "nowhere", "socket", "empty", "huge", "bytes", "deep", "json", "none"]
    )
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "zero" | "full":
            path.symlink_to(f"/dev/{kind}")
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "nowhere":
            path.symlink_to("/nowhere/at/all")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(os.path.relpath(path))
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << random.randrange(30, 42))
        case "bytes":
            path.write_bytes(random.randbytes(random.randrange(1, 5000)))
        case "deep":
            path.write_text(random.choice(["[", '{"a":']) * 200_000)
        case "json":
            path.write_text(json.dumps(value(random)))
        case "empty":
            path.write_bytes(b"")
    return f"{path.name} is {kind}"


def _name(folder: Path, random: Random) -> str:
    """A file of an absurd name."""
    name = random.choice(NAMES)
    data = random.choice([*_trace().values(), pickle.dumps({"entries": []}), b"{}", b""])
    (folder / name).write_bytes(data)
    return f"a file {name!r} of {len(data)} bytes"


def _describe(folder: Path, random: Random) -> str:
    """Values of any shape in the description of the run."""
    path = folder / "run.json"
    meta = json.loads(_trace()["run.json"])
    changed = {random.choice([*meta, "killed_ranks", "nodes", "exit_code", "world_size"]): value(random) for _ in range(2)}
    if path.is_file() and not path.is_symlink():
        path.write_text(json.dumps({**meta, **changed}))
    return f"run.json says {changed}"


def _spoil(folder: Path, random: Random) -> str:
    """Records that were zeroed, moved, or changed, and files that were made longer."""
    path = folder / f"rank-{random.randrange(RANKS):05d}.ddptrace"
    if path.is_symlink() or not path.is_file() or not 0 < path.stat().st_size < 1 << 24:
        return f"{path.name} is not spoiled"
    data = bytearray(path.read_bytes())
    used = max(4, len(bytes(data).rstrip(b"\0")) // layout.RECORD_SIZE)
    at, other = random.randrange(3, used) * 32, random.randrange(3, used) * 32
    match kind := random.choice(["zero", "move", "stretch", "cut", "change", "header"]):
        case "zero":
            data[at : at + 32 * random.choice([1, 2, 40])] = bytes(32)
        case "move":
            data[at : at + 32], data[other : other + 32] = data[other : other + 32], data[at : at + 32]
        case "stretch":
            data += bytes(layout.CHUNK * random.randint(1, 20))
        case "cut":
            del data[random.randrange(len(data)) :]
        case "change":
            at += random.randrange(32)
            data[at : at + 4] = random.choice([b"\xff\xff\xff\xff", b"\0\0\0\x80", random.randbytes(4)])
        case "header":
            at = random.randrange(8, layout.HEADER.size)
            data[at : at + 4] = random.choice([b"\xff\xff\xff\xff", b"\1\0\0\0", random.randbytes(4)])
    path.write_bytes(data)
    return f"{path.name}: {kind}"


def _write(folder: Path, random: Random) -> str:
    """A file of a rank whose records are whole and whose definitions say anything."""
    rank = random.randrange(RANKS + 1)
    path = folder / layout.FILE_PATTERN.format(rank)
    if path.exists() or path.is_symlink():
        if path.is_dir() and not path.is_symlink():
            return f"{path.name} is a folder already"
        path.unlink()
    ring = Ring(str(path), rank)
    start = {"rank": rank, "world_size": RANKS, "pid": 1, "host": "elsewhere", "ticks": 0, "run": "r", "cwd": "/"}
    said = []
    for number in range(random.randrange(1, 6)):
        kind = events.START if number == 0 else random.choice(KINDS)
        detail: Any = {**start, **({random.choice(KEYS): value(random)} if random.random() < 0.5 else {})}
        if number:
            detail = (
                {random.choice(KEYS): value(random) for _ in range(random.randrange(6))} if random.random() < 0.9 else value(random)
            )
        text = {"kind": kind, "group": "default", "stack": 0, "detail": detail}
        said.append(text)
        ring.write_value(0, ring.define(layout.EVENT_TEXT, text), 0, 1.0 + number, 0)
    for number in range(random.randrange(4)):
        sent = {"op": "all_to_all", "call": "alltoall_base_", "group": "default", "origin": "user", "dtype": "float32", "numel": 4}
        sent |= {"shape": [[4]], "root": None, "reduce_op": None, "async": False, "stack": 0, "sends": 2, "receives": 2}
        if random.random() < 0.6:
            sent[random.choice(_EXCHANGE)] = value(random)
        said.append(sent)
        ring.write(layout.COLLECTIVE, 0, ring.define(layout.SIGNATURE_TEXT, sent), number, 9.0 + number, 9.5 + number)
    ring.close()
    return f"{path.name} says {said}"


def _dump(folder: Path, random: Random) -> str:
    """A dump that says anything: of the Flight Recorder, or another pickle, or JSON."""
    rank = random.randrange(3)
    frame = {"name": "f", "filename": "train.py", "line": 3}
    entry = {
        "frames": [frame], "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0,
        "op_id": 1, "profiling_name": "gloo:all_reduce", "time_created_ns": 1, "input_sizes": [[4]], "input_dtypes": ["Float"],
        "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "scheduled", "retired": True, "timeout_ms": 1, "is_p2p": False,
    }  # fmt: skip
    made: Any = {"version": "2.10", "rank": rank, "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}}
    made |= {"pg_status": {}, "entries": [dict(entry) for _ in range(3)]}
    for _ in range(random.randrange(3)):
        target = random.choice([made, *made["entries"]]) if isinstance(made.get("entries"), list) and made["entries"] else made
        if isinstance(target, dict):
            target[random.choice(list(target))] = value(random)
    other: list[Any] = [Path("a"), os.getcwd, {1, 2}, b"x" * 5000, complex(1, 2), ["a"] * 3, None]
    data = pickle.dumps(random.choice(other) if random.random() < 0.2 else made)
    if random.random() < 0.2:
        data = json.dumps(value(random) if random.random() < 0.5 else {**made, "entries": []}, default=str).encode()
    (folder / f"dump_{rank}").write_bytes(data)
    return f"dump_{rank}: {made if len(data) < 5000 else len(data)}"


def hostile(folder: Path, random: Random) -> list[str]:
    """Fills an empty folder; what was done to it."""
    if random.random() < 0.25:
        ways = [_dump, _dump, _dump, _name, _replace]
    else:
        for name, data in _trace().items():
            (folder / name).write_bytes(data)
        ways = [_replace, _replace, _name, _describe, _spoil, _spoil, _write, _dump]
    return [random.choice(ways)(folder, random) for _ in range(random.randint(1, 4))]
