"""The documents next to a script: files of its project that start it, such as a README, shell and batch scripts, manifests.

Looked at are the script's folder and those above it up to the root of the project, and in each of them the folders where such
files are kept by custom. A file counts where a command in it starts the script.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ddp_audit.launch.documents import documented_launches
from ddp_audit.launch.model import ACCELERATE, Launch
from ddp_audit.source import dependency_log
from ddp_audit.source.paths import display_path
from ddp_audit.source.project import ROOT_MARKS

_FOLDERS = (
    "scripts", "script", "bin", "run", "runs", "run_scripts", "jobs", "slurm", "sbatch", "launch", "launchers", "launch_scripts",
    "experiments", "examples", "docs", "doc", "tools", "config", "configs", "conf", "k8s", "kubernetes", "deploy", "docker",
    ".vscode", ".github/workflows",
)  # fmt: skip
_CONFIG_FOLDERS = ("config", "configs", "conf")  # whose Python files are not scripts, and say in comments how they are used
_MAX_LEVELS = 8


@dataclass(slots=True)
class Beside:
    """What the documents of a project say of one script: its launches, and the text of each document by its path."""

    launches: list[Launch] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


def documents_beside(entry: str, known: frozenset[str] = frozenset()) -> Beside:
    """The documents that start the script at an absolute path. `known` are absolute paths that the audit reads by itself."""
    found = Beside()
    root = _root_of(entry)
    stem = os.path.basename(entry).removesuffix(".py")
    for path, data in _candidates(os.path.dirname(entry), root):
        if path in known or path == entry or os.fsencode(stem) not in data:
            continue
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        shown = display_path(path)
        every = launches_in(text, shown)
        own = [launch for launch in every if _starts(launch, path, entry, root)]
        own += [launch for launch in every if launch not in own and any(_of_one_job(launch, other) for other in own)]
        if own:
            found.launches += [with_config(launch, path, root) for launch in own]
            found.texts[shown] = text
    return found


def _of_one_job(launch: Launch, other: Launch) -> bool:
    """Whether a command stands next to another one as that of another node: it may start another script by mistake."""
    near = launch.line is not None and other.line is not None and abs(launch.line - other.line) <= 4
    nodes = (launch.nnodes, launch.nproc_per_node) == (other.nnodes, other.nproc_per_node) and launch.nnodes != 1
    return near and nodes and isinstance(launch.node_rank, int) and isinstance(other.node_rank, int)


def with_config(launch: Launch, document: str, root: str) -> Launch:
    """A launch by accelerate with what its config file says; any other as it is."""
    if launch.kind != ACCELERATE or launch.config_file is None:
        return launch
    from ddp_audit.launch.manifests import with_accelerate_config

    return with_accelerate_config(launch, [Path(os.path.dirname(document)), Path(root), Path.cwd()])


@functools.lru_cache(maxsize=4_096)
def launches_in(text: str, shown: str) -> tuple[Launch, ...]:
    """The launches that a file documents, read once for all scripts that it lies next to or that lead to it."""
    return tuple(documented_launches(text, shown))


def _root_of(entry: str) -> str:
    """The root of a script's project: the nearest folder with a mark of one, the working directory, or the script's folder."""
    folder = top = os.path.dirname(entry)
    cwd = os.getcwd()
    for _ in range(_MAX_LEVELS):
        if any(dependency_log.exists(os.path.join(folder, mark)) for mark in ROOT_MARKS):
            return folder
        if folder == cwd and os.path.dirname(cwd) != cwd:
            return folder
        folder = os.path.dirname(folder)
    return top


def _candidates(folder: str, root: str) -> Iterator[tuple[str, bytes]]:
    """The files that may be documents, those nearest to the script first."""
    for _ in range(_MAX_LEVELS):
        yield from dependency_log.documents_in(folder)
        for name in _FOLDERS:
            below = os.path.join(folder, name)
            yield from dependency_log.documents_in(below, name in _CONFIG_FOLDERS)
        if folder == root or os.path.dirname(folder) == folder:
            return
        folder = os.path.dirname(folder)


def _starts(launch: Launch, document: str, entry: str, root: str) -> bool:
    """Whether a command of a document starts a script: by the folder it is typed in, or by the path as far as it is written."""
    if launch.script is None:
        return False
    if launch.is_module:
        parts = launch.script.split(".")
        return entry.endswith((os.sep + os.path.join(*parts) + ".py", os.sep + os.path.join(*parts, "__main__.py")))
    script = re.sub(r"^\$\{?\w+\}?/", "", launch.script)
    script = os.path.normpath(script)
    if os.path.basename(script) != os.path.basename(entry) or "$" in script:
        return False
    folder = os.path.dirname(document)
    while True:
        for start in dict.fromkeys((os.path.join(folder, launch.folder), folder)):
            if dependency_log.is_file(os.path.join(start, script)):
                return os.path.realpath(os.path.join(start, script)) == os.path.realpath(entry)
        if folder == root or os.path.dirname(folder) == folder:
            break
        folder = os.path.dirname(folder)
    tail = os.path.normpath(os.path.join(launch.folder, script)).lstrip("./")
    return os.sep in tail and entry.endswith(os.sep + tail)
