"""Opens files of a folder that anybody may have filled. A pipe or a device in a file's place is an error there, and no wait."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

MOST_RANKS = 1 << 20  # more than any run has: what claims more is damaged, and would cost memory for each
MOST_BYTES = 1 << 28  # of a file that is read as a whole

_META_KINDS: dict[str, tuple[type, ...]] = {  # of what is used of run.json
    "run": (str,),
    "start": (int, float),
    "end": (int, float),
    "nodes": (list,),
    "cwd": (str,),
    "launch": (str,),
    "torch": (str,),
    "world_size": (int,),
    "exit_code": (int,),
    "killed": (bool,),
    "killed_ranks": (list,),
    "command": (list,),
}


def open_plain(path: str | os.PathLike[str]) -> int:
    """A descriptor to read a plain file with. Raises OSError, also for what is not a plain file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a plain file", str(path))
    return descriptor


def plain_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file, open for reading. Raises OSError as `open_plain` does."""
    return os.fdopen(open_plain(path), "rb")


def read_plain(path: Path) -> bytes:
    """All of a plain file. Raises OSError, also for one that is too long to be what is read so."""
    with plain_file(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(0, f"longer than {MOST_BYTES >> 20} MB", str(path))
    return data


def wrong_fields(meta: Mapping[str, Any]) -> dict[str, str]:
    """What in run.json, the description of a run, is not what the tracer writes there, of what is used: by key what is wrong."""
    wrong = {
        key: f"{key} is {type(meta[key]).__name__}"
        for key, kinds in _META_KINDS.items()
        if not isinstance(meta.get(key), (*kinds, type(None)))
    }
    world = meta.get("world_size")
    if isinstance(world, int) and not 0 <= world <= MOST_RANKS:
        wrong["world_size"] = f"a run of {world} ranks"
    return wrong
