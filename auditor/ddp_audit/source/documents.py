"""Files of a folder that may say how a script is started: README, shell and batch scripts, Makefiles, manifests.

Only those count that hold a launcher's name, so that notes and data beside a script change nothing.
"""

from __future__ import annotations

import hashlib
import os

from ddp_audit.patterns import pattern

SUFFIXES = (".md", ".markdown", ".rst", ".txt", ".sh", ".bash", ".slurm", ".sbatch", ".job", ".pbs", ".yaml", ".yml", ".mk")
_EDITOR_FILES = ("launch.json", "tasks.json")
_LAUNCHERS = pattern(
    rb"torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|srun|mpirun|mpiexec|horovodrun|python[\d.]* "
    rb"|PyTorchJob|(?:lightning|fabric) run"
)
_MAX_BYTES = 400_000
_MAX_FILES = 200  # of one folder


def is_makefile(name: str) -> bool:
    """Whether a file is make's by its name."""
    return name.lower() in ("makefile", "gnumakefile") or name.endswith(".mk")


def candidates(folder: str, python: bool = False) -> list[str]:
    """The paths of the files right in a folder that may be such documents by their names, in order."""
    suffixes = (*SUFFIXES, ".py") if python else SUFFIXES
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if (entry.name.endswith(suffixes) or entry.name in _EDITOR_FILES or is_makefile(entry.name)) and entry.is_file()
            )
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[:_MAX_FILES]]


def documents_in(folder: str, python: bool = False) -> list[tuple[str, bytes]]:
    """Path and content of each such file right in a folder, by name; of Python files too where `python` is set."""
    found: list[tuple[str, bytes]] = []
    for path in candidates(folder, python):
        try:
            if os.path.getsize(path) > _MAX_BYTES:
                continue
            with open(path, "rb") as stream:
                data = stream.read()
        except OSError:
            continue
        if _LAUNCHERS.search(data):
            found.append((path, data))
    return found


def digest(documents: list[tuple[str, bytes]]) -> str:
    """A hash of such files of a folder; empty where there are none."""
    if not documents:
        return ""
    total = hashlib.sha256()
    for path, data in documents:
        total.update(os.path.basename(path).encode(errors="surrogateescape") + b"\0" + hashlib.sha256(data).digest())
    return total.hexdigest()
