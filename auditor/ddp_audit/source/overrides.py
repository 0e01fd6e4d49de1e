"""What replaces a program's defaults: a config file of the script's own, the launch's arguments, `--set`. Read, never run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ddp_audit.program.model import ConfigValue
from ddp_audit.source.constants import assignments, parse_setting
from ddp_audit.source.file import SourceError, parse_file


def config_file_overrides(path: str, origin: str = "config-file") -> dict[str, ConfigValue]:
    """The constants that a Python config file assigns at its top level. Raises SourceError."""
    from pathlib import Path

    file = parse_file(Path(path), "config")
    return {name: ConfigValue(value, file.path, line, origin) for name, (value, line) in assignments(file.tree).items()}


def argument_overrides(arguments: Sequence[str], folders: Sequence[str]) -> dict[str, ConfigValue]:
    """What a script's own arguments set, in their order.

    `--name=value`, `--name value`, `--flag` (True) and `--no-flag` (False) name options; a word that is a Python file below one of
    `folders` is read as a config file, the way of scripts that exec their configuration. Other words are left alone.
    """
    found: dict[str, ConfigValue] = {}
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if word.startswith("--") and len(word) > 2:
            text = word
            if "=" not in word:
                if at < len(arguments) and not arguments[at].startswith("--"):
                    text = f"{word}={arguments[at]}"
                    at += 1
                elif word.startswith("--no-"):
                    text = f"--{word[5:]}=False"
                else:
                    text = f"{word}=True"
            _set(found, text)
        elif word.endswith(".py"):
            path = next((p for p in (os.path.join(folder, word) for folder in folders) if os.path.isfile(p)), None)
            if path is not None:
                try:
                    found.update(config_file_overrides(path, "launch"))
                except SourceError:
                    continue  # the run itself will say so; the defaults stand
    return found


def _set(found: dict[str, ConfigValue], text: str) -> None:
    try:
        name, value = parse_setting(text)
    except ValueError:
        return
    found[name] = ConfigValue(value, "", 0, "launch")


def setting_overrides(settings: Sequence[str]) -> dict[str, ConfigValue]:
    """The values of `--set NAME=VALUE`. Raises ValueError."""
    pairs: dict[str, Any] = dict(parse_setting(text) for text in settings)
    return {name: ConfigValue(value, "", 0, "set") for name, value in pairs.items()}
