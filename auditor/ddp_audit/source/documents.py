"""Files of a folder that may say how a script is started: README, shell and batch scripts, Makefiles, manifests.

Only those count that hold a launcher's name, so that notes and data next to a script change nothing. What this tool has written
is no such file: a folder with a trace, and a log or report of its own, which repeats the command that it was given.
"""

from __future__ import annotations

import hashlib
import json
import os
import re

from ddp_audit.lazy_regex import lazy_compile

SUFFIXES = (".md", ".markdown", ".rst", ".txt", ".sh", ".bash", ".slurm", ".sbatch", ".job", ".pbs", ".yaml", ".yml", ".mk")
_EDITOR_FILES = ("launch.json", "tasks.json")
_LAUNCHERS = lazy_compile(
    rb"torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|srun|mpirun|mpiexec|horovodrun|python[\d.]* "
    rb"|PyTorchJob|(?:lightning|fabric) run"
)
_PROSE = (".md", ".markdown", ".rst")  # may show what the tool prints among text of their own
_OWN_LINES = lazy_compile(rb"^(?:ddp-audit: |\S.*?:\d+:\d+: DDP\d{3} (?:error|warning|info) |No hazards found in \d)", re.MULTILINE)
_RUN_FILE = "run.json"
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
    if is_trace_folder(folder):
        return found
    for path in candidates(folder, python):
        try:
            if os.path.getsize(path) > _MAX_BYTES:
                continue
            with open(path, "rb") as stream:
                data = stream.read()
        except OSError:
            continue
        if _LAUNCHERS.search(data) and not _is_own_log(path, data):
            found.append((path, data))
    return found


def is_trace_folder(folder: str) -> bool:
    """Return whether a folder holds a traced run and nothing else: a run.json of this tool, and no Python file."""
    path = os.path.join(folder, _RUN_FILE)
    try:
        if os.path.getsize(path) > _MAX_BYTES:
            return False
        with open(path, "rb") as stream:
            described = json.load(stream)
        tool = described.get("tool") if isinstance(described, dict) else None
        if not isinstance(tool, dict) or tool.get("name") != "ddp-audit":
            return False
        with os.scandir(folder) as entries:
            return not any(entry.name.endswith(".py") for entry in entries)
    except (OSError, ValueError, RecursionError):
        return False


def _is_own_log(path: str, data: bytes) -> bool:
    """Return whether a file is what this tool printed: such lines stand in it, and it is not a document that shows them."""
    return not path.endswith((*_PROSE, ".py")) and _OWN_LINES.search(data) is not None


def digest(documents: list[tuple[str, bytes]]) -> str:
    """A hash of such files of a folder; empty without one."""
    if not documents:
        return ""
    total = hashlib.sha256()
    for path, data in documents:
        total.update(os.path.basename(path).encode(errors="surrogateescape") + b"\0" + hashlib.sha256(data).digest())
    return total.hexdigest()
