"""Writes the table of frameworks into frameworks.md, from their descriptions: `python docs/frameworks_table.py`."""

from __future__ import annotations

from pathlib import Path

from marked import with_part

from ddp_audit.knowledge.framework import Condition, Framework, frameworks

PAGE = Path(__file__).parent / "frameworks.md"
BEGIN, END = "<!-- frameworks: made by docs/frameworks_table.py -->\n", "<!-- end of frameworks -->\n"
# The answers that decide which rules stay quiet, and how a reader would ask for them.
ASKED = {
    "makes_group": "makes the process group",
    "wraps_models": "wraps models",
    "shards_loaders": "shards loaders",
    "owns_epoch": "sets epochs of samplers",
    "owns_backward": "owns the backward",
    "shards_parameters": "shards parameters",
    "reports_metrics": "gathers metrics",
}


def table() -> str:
    """A line for each framework that answers a question."""
    lines = [f"| framework | packages | {' | '.join(ASKED.values())} |", "|---" * (2 + len(ASKED)) + "|"]
    for name, framework in sorted(frameworks().items()):
        if framework.does and framework.packages:
            packages = ", ".join(f"`{package}`" for package in framework.packages)
            lines.append(f"| {name} | {packages} | {' | '.join(_answer(framework, question) for question in ASKED)} |")
    return "\n".join(lines) + "\n"


def _answer(framework: Framework, question: str) -> str:
    when: Condition | None = framework.does.get(question)
    if when is None:
        return "-"
    named = ", ".join(f"`{name}`" for name in when.names)
    return "yes" if not named else f"{'with' if when.wanted else 'without'} {named}"


def with_table(text: str) -> str:
    """The page with the table as it is now. Raises ValueError where the marks are missing."""
    return with_part(text, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
