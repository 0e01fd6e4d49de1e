"""Writes the table of fixes into fixes.md, from their catalogue: `python docs/fixes_table.py`."""

from __future__ import annotations

from pathlib import Path

from marked import with_part

from ddp_audit.fix.catalogue import CATALOGUE
from ddp_audit.rule import load_rules

PAGE = Path(__file__).parent / "fixes.md"
BEGIN, END = "<!-- fixes: made by docs/fixes_table.py -->\n", "<!-- end of fixes -->\n"


def table() -> str:
    """A line for each fix: the rule, what changes, how safe it is, and why."""
    names = {rule.code: rule.name for rule in load_rules()}
    lines = ["| rule | what changes | safety | why |", "|---|---|---|---|"]
    for code, mend in sorted(CATALOGUE.items()):
        lines.append(f"| {code} {names[code]} | {mend.changes} | {' or '.join(mend.safety)} | {mend.why} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The page with the table as it is now. Raises ValueError where the marks are missing."""
    return with_part(text, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
