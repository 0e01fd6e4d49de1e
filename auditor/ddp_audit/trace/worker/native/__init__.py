"""The native kernel: where its build is kept, and how a rank loads it. It is built by `ddp_audit.trace.build`, never in a rank.

A build is good for one version of torch, one Python ABI and one state of the sources; the folder's name says which. Folder:
`$XDG_CACHE_HOME/ddp-audit/native` (`~/.cache/ddp-audit/native`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

AUTO, ON, OFF = "auto", "on", "off"
MODES = (AUTO, ON, OFF)
MODULE = "ddp_audit_kernel"
SOURCE = "kernel.cpp"
_SOURCES = ("kernel.cpp", "calls.h", "frames.h", "looks.h", "pending.h", "records.h")


def folder() -> str:
    """Where the sources are."""
    return os.path.dirname(os.path.abspath(__file__))


def build_path() -> str:
    """Where the build for this interpreter and its torch belongs. Imports torch; raises OSError where a source is missing."""
    import torch

    return path_of(str(torch.__version__), str(torch.version.git_version))


def path_of(version: str, commit: str) -> str:
    """Where the build for this interpreter and a version of torch belongs."""
    about = hashlib.sha256()
    for name in _SOURCES:
        with open(os.path.join(folder(), name), "rb") as file:
            about.update(file.read())
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    about.update(f"{commit} {platform.machine()} {suffix}".encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"{sys.implementation.cache_tag}-torch{version}-{about.hexdigest()[:16]}"
    return os.path.join(cache, "ddp-audit", "native", name, MODULE + suffix)


def is_built(path: str) -> bool:
    """Whether a build is there, and nobody but this user or root has put it there."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


def load(path: str) -> Any:
    """The module of a build. Raises ImportError where it cannot be loaded."""
    loader = ExtensionFileLoader(MODULE, path)
    spec = spec_from_loader(MODULE, loader)
    if spec is None:
        raise ImportError(f"{path} is not an extension module")
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def load_for_rank(mode: str) -> Any:
    """The native kernel's module for this process, or None where the Python kernel is to be used.

    With AUTO a build that is not there is no matter; with ON one line says so, on the first rank of the host. A build that is
    there and cannot be loaded is always reported.
    """
    if mode == OFF or sysconfig.get_config_var("Py_GIL_DISABLED"):  # the native kernel relies on the GIL
        return None
    path = "no build"
    try:
        path = build_path()
        if is_built(path):
            return load(path)
        if mode == ON:
            _tell("it is not built for the torch of this process ('ddp-audit trace --native on' builds it)")
    except Exception as error:
        _tell(f"{path} cannot be loaded: {' '.join(str(error).split())[:300]}")
    return None


def _tell(why: str) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":
        sys.stderr.write(f"ddp-audit: no native kernel, the Python kernel records: {why}\n")
