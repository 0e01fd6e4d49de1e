"""Opens files of a folder that anybody may have filled. A pipe or a device in a file's place is an error there, and no wait."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_RANKS = 1 << 20  # more than any run has: what claims more is damaged, and would cost memory for each
MOST_BYTES = 1 << 28  # of a file that is read as a whole


def open_plain(path: str | os.PathLike[str]) -> int:
    """A descriptor to read a plain file with. Raises OSError, also for what is no plain file."""
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
