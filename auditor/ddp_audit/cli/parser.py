"""argparse with one-line errors, and what several commands share."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    from ddp_audit.rule import Rule

    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers: TypeAlias = argparse._SubParsersAction


class Usage(Exception):
    """A command line that cannot be followed: one line, exit code 2."""


class Help(argparse.RawDescriptionHelpFormatter):
    """Help whose description and epilog keep their lines, each fitted to the terminal."""

    def __init__(self, prog: str, **options: Any) -> None:
        # argparse makes one of these for each option, and imports shutil for the width, with all kinds of archives.
        options.setdefault("width", _columns() - 2)
        super().__init__(prog, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from ddp_audit.report.columns import fit

        lines = (fit(line, width) if line.startswith(" ") else textwrap.wrap(line, width) or [""] for line in text.splitlines())
        return "\n".join(part for parts in lines for part in parts)


def _columns() -> int:
    """The width of the terminal, as shutil.get_terminal_size tells it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80 if sys.__stdout__ is not None else 80
    except (OSError, ValueError):
        return 80


class Parser(argparse.ArgumentParser):
    """A parser that raises Usage instead of printing its whole usage, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", Help)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{message} ('{self.prog} --help' tells the options)")


def project_rules() -> list[Rule]:
    """The rules that hold in the working directory, those of its settings included. Raises Usage."""
    from ddp_audit.audit import UsageError, installed_rules
    from ddp_audit.source.config import ConfigError, find_config

    try:
        config = find_config(Path())
        return installed_rules([str(config.folder / folder) for folder in config.rules])
    except (ConfigError, UsageError) as error:
        raise Usage(str(error)) from None
