"""What is said of libraries by name alone (`libraries.toml`): above all which calls communicate by themselves, unmodelled.

The `runs` of the frameworks say so too. A prediction that passed over such a call would say that a script which
leaves its training to a library sends nothing.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ddp_audit.knowledge.framework import frameworks
from ddp_audit.knowledge.reading import HERE, parse


@functools.cache
def _libraries() -> dict[str, Any]:
    return parse((HERE / "libraries.toml").read_text(encoding="utf-8"))


@functools.cache
def silent_packages() -> frozenset[str]:
    """Return the packages that send nothing, whatever of them is called, except the standard library."""
    return frozenset(_libraries()["send-nothing"])


@functools.cache
def _runners() -> dict[str, tuple[str, ...]]:
    """By package: the names of it that run a training, or send, by themselves."""
    return {package: one.runs for one in frameworks().values() for package in one.packages}


@functools.lru_cache(maxsize=4096)
def may_send(name: str) -> bool:
    """Return whether a call of something of a library, by its full name, may send something that no model issues."""
    if name.startswith("torch."):
        return bool(unfollowed(name))
    if name.startswith(tuple(_libraries()["send"])):
        return True
    package = name.partition(".")[0]
    return package not in silent_packages() and package not in sys.stdlib_module_names


@functools.lru_cache(maxsize=4096)
def unfollowed(name: str) -> str:
    """Return what is not followed after a call of `name`, such as `lightning.Trainer`; empty where all is."""
    last = name.rsplit(".", 1)[-1]
    for module, names in _libraries()["torch"].items():
        if name.startswith(f"{module}.") and last in names:
            return f"what {name} sends is not followed"
    for known in _runners().get(name.partition(".")[0], ()):
        if last.endswith(known[1:]) if known.startswith("*") else last == known:
            return f"{name} communicates by itself, and what is sent from there on is not followed"
    return ""


def file_locks() -> tuple[str, ...]:
    """Return the packages that lock files."""
    return tuple(_libraries()["file-locks"])


def has_batchnorm(name: str) -> bool:
    """Return whether a model of torchvision, by its full name, has BatchNorm layers."""
    return name.startswith("torchvision.models.") and any(word in name for word in _libraries()["torchvision"]["batchnorm"])


@functools.lru_cache(maxsize=4096)
def augments(name: str) -> bool:
    """Return whether a class of a library is a transform that draws random numbers for each sample."""
    known = _libraries()["augmenting"]
    return name.startswith(tuple(known["modules"])) and any(word in name.rsplit(".", 1)[-1] for word in known["classes"])


def since(name: str) -> tuple[int, int] | None:
    """Return the first version of torch that has a name; None where that is not known."""
    version = _libraries()["torch-since"].get(name)
    if version is None:
        return None
    major, minor = version.split(".")
    return int(major), int(minor)
