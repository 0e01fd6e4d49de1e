"""Writes the table of rules into README.md, from the rules' own text: `python docs/readme_table.py`."""

from __future__ import annotations

from pathlib import Path

from marked import with_part

from ddp_audit.rule import load_rules

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- rules: made by docs/readme_table.py -->\n", "<!-- end of rules -->\n"


def table() -> str:
    """A line for each rule: code, name, severity, and what it reports."""
    lines = ["| code | name | severity | reports |", "|---|---|---|---|"]
    for rule in load_rules():
        what = " ".join(rule.what.split()).replace("|", "\\|")
        lines.append(f"| {rule.code} | {rule.name} | {rule.level} | {what} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The README with the table as it is now. Raises ValueError where the marks are missing."""
    return with_part(text, BEGIN, END, table())


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
