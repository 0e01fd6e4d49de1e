"""Writes the index of what rules can ask into asking-the-program.md, from the docstrings: `python docs/questions_page.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from marked import with_part

from ddp_audit.tree import nodes, questions, values

PAGE = Path(__file__).parent / "asking-the-program.md"
BEGIN, END = "<!-- questions: made by docs/questions_page.py -->\n", "<!-- end of questions -->\n"


def table() -> str:
    """The three modules: kinds of nodes with what they carry, then values and questions under what they are about."""
    lines: list[str] = []
    for module in (nodes, values, questions):
        lines += [f"## `{module.__name__}`", "", _sentences(module), ""]
        for title, members in _groups(module):
            lines += [f"### {title}", "", "| name | says |", "|---|---|"]
            for member in members:
                lines.append(f"| {_shown(member)} | {_row(member)} |")
                lines += [f"| {name} | {text} |" for name, text in _asked_of(member)]
            lines.append("")
    return "\n".join(lines)


def _groups(module: ModuleType) -> Iterator[tuple[str, list[Any]]]:
    """The classes and functions of a module by the file that defines them, under the first sentence of its docstring."""
    found: dict[str, list[Any]] = {}
    for name in module.__all__:
        member = getattr(module, name)
        if inspect.isclass(member) or inspect.isfunction(member):
            found.setdefault(member.__module__, []).append(member)
    for home, members in found.items():
        title = _sentences(inspect.getmodule(members[0])).split(". ")[0].rstrip(".")
        yield title, sorted(members, key=lambda member: (inspect.isfunction(member), member.__name__)) if home else members


def _asked_of(member: Any) -> Iterator[tuple[str, str]]:
    """What can be asked of a class itself: its methods and what it computes."""
    for name, value in sorted(vars(member).items()) if inspect.isclass(member) else ():
        of = value.fget if isinstance(value, property) else value
        if inspect.isfunction(of) and inspect.getdoc(of) and not name.startswith("_"):
            given = "" if isinstance(value, property) else f"({', '.join(list(inspect.signature(of).parameters)[1:])})"
            yield f"`{member.__name__}.{name}{given}`", _sentences(of).replace("|", "\\|")


def _sentences(of: Any) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(of) or "").split("\n\n")[0].split())


def _shown(member: Any) -> str:
    if inspect.isclass(member):
        return f"`{member.__name__}`"
    return f"`{member.__name__}({', '.join(inspect.signature(member).parameters)})`"


def _row(member: Any) -> str:
    text = _sentences(member)
    if inspect.isclass(member) and member.__module__.startswith(nodes.Node.__module__.rpartition(".")[0]):
        shown = [member, *member.__mro__[1:2]] if member is nodes.Node else [member]
        own = [name for base in shown for name, kind in inspect.get_annotations(base).items() if not kind.startswith("ClassVar")]
        text += f" Carries {', '.join(f'`{name}`' for name in own)}." if own else ""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def with_table(text: str) -> str:
    """The page with the index as it is now. Raises ValueError where the marks are missing."""
    return with_part(text, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
