"""The page of a rule, made from the rule's own attributes: text for `explain`, Markdown and JSON."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_audit.source import suppress

if TYPE_CHECKING:
    from ddp_audit.rule import Rule


@dataclass(frozen=True, slots=True)
class Page:
    """What there is to say about one code. Empty parts are left out of the page."""

    code: str
    name: str
    level: str
    what: str
    why: str
    quiet: str = ""
    confirmed: str = ""
    source: str = ""
    bad: str = ""
    good: str = ""
    remedy: str = ""
    outcome: str = ""

    def sections(self) -> list[tuple[str, str]]:
        """(heading, paragraph) of the parts in prose."""
        parts = [
            ("What it reports", self.what),
            ("Why it matters", self.why),
            ("What to do instead", self.remedy),
            ("When it stays quiet", self.quiet),
            ("What confirms it in a trace", self.confirmed),
            ("What a run of the example on two CPU ranks shows", self.outcome),
            ("Where the facts come from", self.source),
        ]
        return [(heading, _flow(text)) for heading, text in parts if text]

    def programs(self) -> list[tuple[str, str]]:
        """(heading, program) of the examples."""
        parts = [("Example", self.bad), ("Use instead", self.good)]
        return [(heading, inspect.cleandoc(text)) for heading, text in parts if text]

    def text(self, width: int = 100) -> str:
        """The page for a terminal or a pipe."""
        lines = [f"{self.code} {self.name} ({self.level})"]
        for heading, paragraph in self.sections():
            lines += ["", heading, textwrap.fill(paragraph, width, initial_indent="  ", subsequent_indent="  ")]
        for heading, program in self.programs():
            lines += ["", heading, textwrap.indent(program, "  ")]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """The page for viewers that show Markdown."""
        lines = [f"# {self.code} {self.name}", "", f"Level: {self.level}"]
        for heading, paragraph in self.sections():
            lines += ["", f"## {heading}", "", paragraph]
        for heading, program in self.programs():
            lines += ["", f"## {heading}", "", "```python", program, "```"]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, str]:
        """Every part by name; prose on one line."""
        prose = ("what", "why", "quiet", "confirmed", "source", "remedy", "outcome")
        out = {key: getattr(self, key) for key in ("code", "name", "level")}
        out.update({key: _flow(getattr(self, key)) for key in prose})
        out.update({key: inspect.cleandoc(getattr(self, key)) for key in ("bad", "good")})
        return out


def page_of(rule: Rule) -> Page:
    """The page of a rule."""
    return Page(
        rule.code,
        rule.name,
        rule.level,
        rule.what,
        rule.why,
        rule.quiet,
        rule.confirmed,
        rule.source,
        rule.bad,
        rule.good,
        rule.remedy,
        rule.outcome,
    )


def suppression_pages() -> list[Page]:
    """Pages of what the audit reports about suppression comments."""
    return [
        Page(
            *suppress.WITHOUT_CODE,
            "warning",
            "A suppression comment names no rule.",
            "A comment without a code would hide hazards that nobody has looked at, so it suppresses nothing.",
            bad="dist.barrier()  # ddp-audit: ignore",
            good="dist.barrier()  # ddp-audit: ignore[DDP201] only rank 0 is in this group",
            remedy="Name the rules in brackets, by code or name.",
        ),
        Page(
            *suppress.UNKNOWN,
            "warning",
            "A suppression comment names a rule that does not exist.",
            "It suppresses nothing; most often a digit is wrong, and the hazard it was meant for is reported all the same.",
            bad="dist.barrier()  # ddp-audit: ignore[DDP021]",
            good="dist.barrier()  # ddp-audit: ignore[DDP201]",
            remedy="Use a code or name that `ddp-audit rules` lists.",
        ),
        Page(
            *suppress.UNUSED,
            "warning",
            "A suppression comment suppresses nothing.",
            "The hazard is gone, or stands elsewhere now; a comment that stays behind would hide the next one at this place.",
            quiet="Rules that were not selected, files that were only imported, and documents outside of the folders given: "
            "another script may need the comment.",
            remedy="Delete the comment, or the name in it.",
        ),
    ]


def _flow(text: str) -> str:
    return " ".join(text.split())
