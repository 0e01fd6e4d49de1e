"""argparse with one-line errors, and what several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers: TypeAlias = argparse._SubParsersAction


class Usage(Exception):
    """A command line that cannot be followed: one line, exit code 2."""


class Parser(argparse.ArgumentParser):
    """A parser that raises Usage instead of printing its whole usage, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{message} ('{self.prog} --help' tells the options)")
