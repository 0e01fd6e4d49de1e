"""Settings of a project: `[tool.ddp-audit]` in pyproject.toml, or ddp-audit.toml, whichever is nearest."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_audit.findings import CONFIDENCES, SEVERITIES
from ddp_audit.source.paths import display_path
from ddp_audit.source.reading import read_text

SETTINGS = ("ddp-audit.toml", "pyproject.toml")  # in one folder the first comes before the second
FORMATS = (
    "full", "concise", "grouped", "json", "json-lines", "sarif", "github", "gitlab", "junit", "rdjson", "azure", "markdown",
    "text", "terminal",
)  # fmt: skip
_OWN = "ddp-audit.toml"
_MOST_DOTS = 2_000  # in a line: the parser takes time with the square of the parts of a dotted key
_NAME = "ddp-audit"
_MOST_BYTES = 1_000_000  # of a file of settings
_MOST_STUBS = 64  # files


class ConfigError(Exception):
    """A configuration that cannot be used; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings as the file gives them; None where it is silent. `path` is the file, for messages."""

    path: str | None = None
    select: list[str] | None = None
    ignore: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    respect_gitignore: bool | None = None
    min_confidence: str | None = None
    min_severity: str | None = None
    strict: bool | None = None
    world_size: int | None = None
    format: str | None = None
    baseline: str | None = None  # as given, relative to the folder of the file
    per_file_ignores: Mapping[str, list[str]] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)
    target_torch: str | None = None
    preview: bool | None = None
    roots: list[str] = field(default_factory=list)  # relative to the folder of the file
    rules: list[str] = field(default_factory=list)  # folders, relative to the folder of the file
    helpers: Mapping[str, list[str]] = field(default_factory=dict)
    stubs: list[str] = field(default_factory=list)  # files that describe libraries, relative to the folder of the file
    stub_texts: tuple[tuple[str, str], ...] = ()  # the path of each of them, as reports show it, and what is in it
    unread: tuple[str, ...] = ()  # tables on the way that look like settings and are not, in sentences

    @property
    def origins(self) -> dict[str, str]:
        """Where each name of a rule stands in the file."""
        named = {
            "select": self.select or [],
            "ignore": self.ignore,
            "per-file-ignores": [name for names in self.per_file_ignores.values() for name in names],
            "levels": list(self.levels),
        }
        return {part.strip(): f"{self.path}: {key}" for key, texts in named.items() for text in texts for part in text.split(",")}

    @property
    def folder(self) -> Path:
        """The folder that paths in the settings are relative to."""
        return Path() if self.path is None else Path(self.path).parent

    @property
    def home(self) -> str:
        """The folder as an absolute path, for patterns; empty where it is the working directory, or there is no file."""
        folder = "" if self.path is None else os.path.abspath(self.folder)
        return "" if folder == os.getcwd() else folder

    @property
    def rule_folders(self) -> list[str]:
        """The folders of rules. What is in them is code of the project's own, and no more than named here."""
        return [str(self.folder / folder) for folder in self.rules]

    @property
    def baseline_file(self) -> Path | None:
        """The file of known findings."""
        return None if self.baseline is None else self.folder / self.baseline

    @property
    def stub_files(self) -> list[Path]:
        """The files that describe libraries."""
        return [self.folder / name for name in self.stubs]


HELPERS = ("rank", "local-rank", "world-size", "main-process", "wrap", "barrier")
LEVELS = (*SEVERITIES, "off")


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value)


def _table_of(fits: Callable[[Any], bool], keys: tuple[str, ...] = ()) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        return isinstance(value, dict) and all(fits(item) and (not keys or key in keys) for key, item in value.items())

    return holds


# Each key: what its value must be, in words and as a test.
_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "select": ("a list of strings", _strings),
    "ignore": ("a list of strings", _strings),
    "per-file-ignores": ("a table of file patterns, each with a list of rules", _table_of(_strings)),
    "levels": (f"a table of rules, each with one of {', '.join(LEVELS)}", _table_of(lambda item: item in LEVELS)),
    "exclude": ("a list of strings", _strings),
    "respect-gitignore": ("true or false", lambda value: isinstance(value, bool)),
    "min-confidence": ("one of " + ", ".join(CONFIDENCES), lambda value: value in CONFIDENCES),
    "min-severity": ("one of " + ", ".join(SEVERITIES), lambda value: value in SEVERITIES),
    "strict": ("true or false", lambda value: isinstance(value, bool)),
    "world-size": ("a whole number from 1", lambda value: type(value) is int and value >= 1),
    "format": ("one of " + ", ".join(FORMATS), lambda value: value in FORMATS),
    "baseline": ("the name of a file", lambda value: isinstance(value, str) and bool(value)),
    "target-torch": (
        "a version of torch, as '2.4'",
        lambda value: isinstance(value, str) and re.fullmatch(r"\d+\.\d+(\.\d+)?", value) is not None,
    ),
    "preview": ("true or false", lambda value: isinstance(value, bool)),
    "roots": ("a list of folders", _strings),
    "rules": ("a list of folders with rules", _strings),
    "stubs": (f"a list of at most {_MOST_STUBS} TOML files", lambda value: _strings(value) and len(value) <= _MOST_STUBS),
    "helpers": (f"a table of {', '.join(HELPERS)}, each with a list of names", _table_of(_strings, HELPERS)),
}


def find_config(start: Path) -> Config:
    """The settings nearest to `start` (a file or folder), looking upwards; the defaults without one.

    ddp-audit.toml comes before pyproject.toml in one folder; a pyproject.toml without the table is passed over.
    Raises ConfigError.
    """
    unread: list[str] = []
    for path in settings_paths(start):
        if not path.is_file():
            continue
        loaded = _load(path)
        if path.name == _OWN:
            return _config(loaded, path, unread)
        tool = loaded.get("tool")
        table = tool.get(_NAME) if isinstance(tool, dict) else None
        unread += _misnamed(loaded, tool, path)
        if table is not None:
            return _config(table, path, unread)
    return Config(unread=tuple(unread))


def _misnamed(loaded: dict[str, Any], tool: Any, path: Path) -> Iterator[str]:
    """Sentences on tables whose names differ from that of the settings in case, hyphens and the like, or in the place alone."""
    tables = [(f"tool.{key}", key) for key in (tool if isinstance(tool, dict) else ()) if key != _NAME]
    for shown, key in [*tables, *((key, key) for key in loaded)]:
        if "".join(filter(str.isalnum, key)).lower() == _NAME.replace("-", ""):
            yield f"{display_path(path)}: [{shown}] is not read; the settings are in [tool.{_NAME}]."


def settings_paths(start: Path) -> list[Path]:
    """Each path that `find_config` would look for settings at, in order."""
    folder = start.absolute()
    return [candidate / name for candidate in (folder, *folder.parents) for name in (_OWN, "pyproject.toml")]


def _load(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = read_text(path, _MOST_BYTES)
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise ConfigError(f"{display_path(path)}: cannot be read: a line has more than {_MOST_DOTS:,} dots")
        loaded: dict[str, Any] = tomllib.loads(text)
        return loaded
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError; nested too deeply
        raise ConfigError(f"{display_path(path)}: is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{display_path(path)}: cannot be read: {error.strerror or error}") from None


def _config(table: Any, path: Path, unread: Sequence[str]) -> Config:
    shown = display_path(path)
    if not isinstance(table, dict):
        raise ConfigError(f"{shown}: tool.ddp-audit is not a table")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            import difflib

            near = difflib.get_close_matches(key.replace("_", "-"), _KEYS, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else f"; the keys are {', '.join(_KEYS)}"
            if key == "tool" and path.name == "ddp-audit.toml":
                hint = ": the settings stand here without [tool.ddp-audit] above them"
            raise ConfigError(f"{shown}: unknown key '{key}'{hint}")
        words, fits = _KEYS[key]
        if not fits(value):
            raise ConfigError(f"{shown}: '{key}' must be {words}{_near_value(value, words)}")
        values[key.replace("-", "_")] = value
    config = Config(path=shown, unread=tuple(unread), **values)
    return replace(config, stub_texts=_stub_texts(config)) if config.stubs else config


def _near_value(value: Any, words: str) -> str:
    """The nearest of the values that a key can have, as a question; empty where none is near, or the value is not a text."""
    import difflib  # for a message that ends the run

    values = words.removeprefix("one of ").split(", ") if words.startswith("one of ") else []
    found = difflib.get_close_matches(value, values, 1, 0.6) if isinstance(value, str) else []
    return f"; did you mean '{found[0]}'?" if found else ""


def _stub_texts(config: Config) -> tuple[tuple[str, str], ...]:
    """The files that describe libraries, read and checked. Raises ConfigError."""
    from ddp_audit.knowledge.stubs import MOST_BYTES, KnowledgeError, described_in

    found: list[tuple[str, str]] = []
    for path in config.stub_files:
        shown = display_path(path)
        try:
            text = read_text(path, MOST_BYTES)
            described_in(text, shown)
        except KnowledgeError as error:
            raise ConfigError(str(error)) from None
        except ValueError:
            raise ConfigError(f"{shown}: is not UTF-8") from None
        except OSError as error:
            raise ConfigError(f"{shown}: cannot be read: {error.strerror or error}") from None
        found.append((shown, text))
    return tuple(found)
