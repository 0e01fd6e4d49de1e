"""What a preflight was asked for, as its launcher hands it to the ranks."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

_MARK = "ddp-audit-preflight="

DEFAULT_DIRECTORY = "ddp-preflight"
DEFAULT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the ranks need to know. `backend` is the one that the script asks for, None where its text does not say.

    `timeout` is how many seconds the ranks have. `script` is a path, relative to the working directory where it lies below it;
    `roots` are further folders in which its imports are looked up.
    """

    directory: str = DEFAULT_DIRECTORY
    run: str = ""
    timeout: float = DEFAULT_TIMEOUT
    quick: bool = False
    backend: str | None = None
    script: str | None = None
    roots: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def encode(settings: Settings) -> str:
    """One word for a command line that no shell on the way (ssh, pdsh) changes."""
    return _MARK + base64.urlsafe_b64encode(json.dumps(asdict(settings)).encode()).decode()


def decode(words: Sequence[str]) -> tuple[Settings, list[str]]:
    """The settings among the words of a command line, and the other words. Raises ValueError without one."""
    found = next((word for word in words if word.startswith(_MARK)), None)
    if found is None:
        raise ValueError("this program is started by ddp-audit preflight")
    fields = json.loads(base64.urlsafe_b64decode(found.removeprefix(_MARK)))
    fields.update({name: tuple(fields[name]) for name in ("roots", "data", "shared")})
    return Settings(**fields), [word for word in words if word is not found]


def backend_names(backend: str | None) -> list[str]:
    """The parts of a backend as torch takes it: `nccl`, or `cpu:gloo,cuda:nccl`."""
    return [name for part in backend.lower().split(",") for name in part.split(":")] if backend else []


def seconds(text: str) -> float:
    """A positive number of seconds. Raises ValueError."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number
