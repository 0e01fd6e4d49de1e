"""argparse with one-line errors, and what several commands share."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterable
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
    """A parser that raises Usage instead of printing its whole usage, takes no abbreviated options and names near ones."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", Help)
        super().__init__(**options)
        if " " in self.prog:  # that of a command
            self.add_argument(
                "--color", choices=("auto", "always", "never"), default="auto", help="default: auto, by the terminal and NO_COLOR"
            )

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        option = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        hint = near(option, self._known_options()) if option else ""
        commands = [
            one.prog
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for one in action.choices.values()
        ]
        prog = commands[0] if len(commands) == 1 else self.prog  # arguments that a command does not know come back to its parent
        raise Usage(f"{message}{hint} ('{prog} --help' lists the options)")

    def _known_options(self) -> list[str]:
        """The options of this parser and of the commands below it."""
        known: list[str] = []
        for action in self._actions:
            known += action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                known += [option for one in action.choices.values() for option in one._option_string_actions]
        return known

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            choices = list(map(str, action.choices))
            raise argparse.ArgumentError(action, f"'{value}' is not one of {', '.join(choices)}{near(str(value), choices)}")
        super()._check_value(action, value)


def near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ..?` with the nearest of some words; empty where none is near."""
    import difflib  # for a message that ends the run

    found = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f"; did you mean '{found[0]}'?" if found else ""


def output_file(text: str) -> str | None:
    """The value of --output: the name of a file, None for `-`, which is standard output as without the option."""
    return None if text == "-" else text


def add_rules_option(parser: argparse._ActionsContainer) -> None:
    """Add the option without which rules of a project that is audited are not loaded."""
    parser.add_argument(
        "--allow-project-rules",
        action="store_true",
        help="load the rules that the project's settings name: this executes code of the project",
    )


def project_rules(allowed: bool) -> list[Rule]:
    """Return the rules that hold in the working directory, those of its settings where that is allowed. Raise Usage."""
    from ddp_audit.audit import UsageError, installed_rules
    from ddp_audit.selection import withheld_note
    from ddp_audit.source.config import ConfigError, find_config

    try:
        folders = find_config(Path()).rule_folders
        if folders and not allowed:
            print(f"ddp-audit: {withheld_note(folders)}", file=sys.stderr)
        return installed_rules(folders if allowed else ())
    except (ConfigError, UsageError) as error:
        raise Usage(str(error)) from None
