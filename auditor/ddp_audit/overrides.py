"""What replaces a program's defaults: a config file of the script's own, the launch's arguments, `--set`. Read, never run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddp_audit.source.constants import assignments, parse_setting
from ddp_audit.source.files import SourceError, parse_file


def config_file_overrides(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The constants that a Python config file assigns at its top level, by name. Raises SourceError."""
    return assignments(parse_file(Path(path), "config").tree)


def argument_overrides(arguments: Sequence[str], folders: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """What a script's own arguments set, by name; a later argument wins.

    `--name=value`, `--name value`, `--flag` (True) and `--no-flag` (False) name options, with underscores for dashes. A word that
    is a Python file below one of `folders` is read as a config file, the way of scripts that exec their configuration. Other
    words are left alone.
    """
    found: dict[str, Any] = {}
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
            try:
                name, value = parse_setting(text)
            except ValueError:
                continue
            found[name] = value
        elif word.endswith(".py"):
            path = next((candidate for folder in folders if (candidate := Path(folder, word)).is_file()), None)
            if path is not None:
                try:
                    found.update(config_file_overrides(path))
                except SourceError:
                    continue  # the run itself will say so; the defaults stand
    return found


def setting_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`, by name. Raises ValueError."""
    return dict(parse_setting(text) for text in settings)
