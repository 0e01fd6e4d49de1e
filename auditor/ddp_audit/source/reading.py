"""Reads files that the audited project names or holds: only regular ones, and no more than is asked for.

What a project names can be a pipe that nobody writes to, a device without an end, or a file of any size.
"""

from __future__ import annotations

import errno
import os
import stat

MOST_BYTES = 16 * 1024 * 1024  # of a file that is read whole


def read_regular(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file. Raise OSError for anything else, and for a file with more than `most` bytes."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
    with open(path, "rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"is larger than {most // 1024:,} KB", os.fspath(path))
    return data


def read_text(path: str | os.PathLike[str], most: int = MOST_BYTES) -> str:
    """Return the text of a regular file in UTF-8. Raise OSError as `read_regular` does, and UnicodeDecodeError."""
    return read_regular(path, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
