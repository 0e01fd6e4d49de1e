"""Settings of a project: `[tool.ddp-audit]` in pyproject.toml, or ddp-audit.toml, whichever is nearest."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddp_audit.findings import CONFIDENCES
from ddp_audit.source.files import display_path

FORMATS = ("terminal", "text", "json", "sarif", "github", "gitlab", "junit")


class ConfigError(Exception):
    """A configuration that cannot be used; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings as the file gives them; None where it is silent. `path` is the file, for messages."""

    path: str | None = None
    select: list[str] | None = None
    ignore: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    min_confidence: str | None = None
    strict: bool | None = None
    world_size: int | None = None
    format: str | None = None
    baseline: str | None = None  # as given, relative to the folder of the file


_KEYS: dict[str, str] = {
    "select": "a list of strings",
    "ignore": "a list of strings",
    "exclude": "a list of strings",
    "min-confidence": "one of " + ", ".join(CONFIDENCES),
    "strict": "true or false",
    "world-size": "a whole number from 1",
    "format": "one of " + ", ".join(FORMATS),
    "baseline": "the name of a file",
}


def find_config(start: Path) -> Config:
    """The settings nearest to `start` (a file or folder), looking upwards; the defaults where there are none.

    ddp-audit.toml comes before pyproject.toml in one folder; a pyproject.toml without the table is passed over.
    Raises ConfigError.
    """
    folder = start.absolute()
    for candidate in (folder, *folder.parents):
        own = candidate / "ddp-audit.toml"
        if own.is_file():
            return _config(_load(own), own)
        project = candidate / "pyproject.toml"
        if project.is_file():
            tool = _load(project).get("tool")
            table = tool.get("ddp-audit") if isinstance(tool, dict) else None
            if table is not None:
                return _config(table, project)
    return Config()


def _load(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        loaded: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return loaded
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigError(f"{display_path(path)}: is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{display_path(path)}: cannot be read: {error.strerror or error}") from None


def _config(table: Any, path: Path) -> Config:
    shown = display_path(path)
    if not isinstance(table, dict):
        raise ConfigError(f"{shown}: tool.ddp-audit is not a table")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(key.replace("_", "-"), _KEYS, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else f"; the keys are {', '.join(_KEYS)}"
            raise ConfigError(f"{shown}: unknown key '{key}'{hint}")
        if not _fits(key, value):
            raise ConfigError(f"{shown}: '{key}' must be {_KEYS[key]}")
        values[key.replace("-", "_")] = value
    return Config(path=shown, **values)


def _fits(key: str, value: Any) -> bool:
    if key in ("select", "ignore", "exclude"):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if key == "strict":
        return isinstance(value, bool)
    if key == "baseline":
        return isinstance(value, str) and bool(value)
    if key == "world-size":
        return isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return value in (CONFIDENCES if key == "min-confidence" else FORMATS)
