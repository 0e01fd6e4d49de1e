"""The page of a rule, made from the rule's own attributes: text for `explain`, Markdown and JSON."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_audit.source import suppress

if TYPE_CHECKING:
    from ddp_audit.rule import Rule

HOMEPAGE = "https://github.com/ddp-audit/ddp-audit"
SITE = "https://ddp-audit.github.io/ddp-audit/"  # the site that mkdocs.yml makes

# Outcomes as rules and cases name them (tests/cases/README.md), for readers.
_OUTCOMES = {
    "clean": "All ranks leave in order.",
    "gradients-local": "Gradients differ between the ranks at an optimizer step.",
    "parameters-differ": "Parameters differ between the ranks at the end.",
    "buffers-differ": "Buffers differ between the ranks at the end.",
    "same-samples": "The ranks get equal batches.",
    "same-order": "The batches of a rank come in the same order in every epoch.",
}
_OUTCOMES_WITH = {
    "hang": "{who} waits for partners that do not come.",
    "abort": "A signal ends {who}.",
    "error": "{who} ends with an exception: {text}.",
    "shows": "The program prints: {text}.",
    "reductions": "Each rank issues {text} all-reduces.",
    "wrong-factor": "The gradient is {text} times that of one process.",
    "device": "Some rank takes device {text}, which the node has not.",
    "all-on-device": "Every rank takes device {text}.",
    "not-run": "It is not run: {text}.",
}


PREVIEW = "This rule is in preview: it runs with `--preview`, and its findings can still change."


@dataclass(frozen=True, slots=True)
class Page:
    """What there is to say about one code. Empty parts are left out of the page."""

    code: str
    name: str
    severity: str
    what: str
    why: str
    quiet: str = ""
    confirmed: str = ""
    source: str = ""
    bad: str = ""
    good: str = ""
    remedy: str = ""
    outcome: str = ""
    preview: bool = False
    has_site: bool = True  # a rule of a project's own has no page on the site

    @property
    def url(self) -> str:
        """The address of the page on the site; empty without one."""
        return page_url(self.code) if self.has_site else ""

    def sections(self) -> list[tuple[str, str]]:
        """(heading, paragraph) of the parts in prose."""
        parts = [
            ("What it reports", self.what),
            ("Why it matters", self.why),
            ("Fix", _sentence(self.remedy)),
            ("When it stays quiet", self.quiet),
            ("What confirms it in a trace", self.confirmed),
            ("What a run of the example on two CPU ranks shows", in_words(self.outcome)),
            ("Where the facts come from", self.source),
        ]
        return [(heading, _flow(text)) for heading, text in parts if text]

    def programs(self) -> list[tuple[str, str]]:
        """(heading, program) of the examples."""
        parts = [("Example", self.bad), ("Use instead", self.good)]
        return [(heading, inspect.cleandoc(text)) for heading, text in parts if text]

    def text(self, width: int = 100) -> str:
        """The page for a terminal or a pipe."""
        lines = [f"{self.code} {self.name} ({self.severity})", *(["", PREVIEW] if self.preview else [])]
        for heading, body, is_program in self._parts():
            shown = body if is_program else textwrap.fill(body, width - 2)
            lines += ["", heading, textwrap.indent(shown, "  ")]
        if self.url:
            lines += ["", self.url]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """The page for viewers that show Markdown."""
        lines = [f"# {self.code} {self.name}", "", f"Severity: {self.severity}", *(["", PREVIEW] if self.preview else [])]
        for heading, body, is_program in self._parts():
            lines += ["", f"## {heading}", "", *(["```python", body, "```"] if is_program else [body])]
        lines += ["", "## To keep a finding", "", f"End its line with `# ddp-audit: ignore[{self.code}]` and the reason."]
        return "\n".join(lines) + "\n"

    def _parts(self) -> list[tuple[str, str, bool]]:
        """Heading, text and whether it is a program, in the order of the page: the examples come after what, why and the fix."""
        prose = [(heading, text, False) for heading, text in self.sections()]
        programs = [(heading, text, True) for heading, text in self.programs()]
        return [*prose[:3], *programs, *prose[3:]]

    def to_json(self) -> dict[str, str | bool]:
        """Every part by name; prose on one line."""
        prose = ("what", "why", "quiet", "confirmed", "source", "remedy", "outcome")
        out: dict[str, str | bool] = {key: getattr(self, key) for key in ("code", "name", "severity", "preview")}
        out.update({key: _flow(getattr(self, key)) for key in prose})
        out.update({key: inspect.cleandoc(getattr(self, key)) for key in ("bad", "good")})
        return out


def page_of(rule: Rule) -> Page:
    """The page of a rule."""
    return Page(
        rule.code,
        rule.name,
        rule.level,
        rule.summary,
        rule.rationale,
        rule.exceptions,
        rule.trace_evidence,
        rule.source,
        rule.bad,
        rule.good,
        rule.fix_hint,
        rule.outcome,
        rule.preview,
        has_site=type(rule).__module__.partition(".")[0] == "ddp_audit_rules",
    )


def page_url(code: str) -> str:
    """The page of one of the project's own rules on the site."""
    return f"{SITE}rules/{code}/"


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


def in_words(outcome: str) -> str:
    """An outcome as sentences; what is not known stays as it is.

    >>> in_words("hang 0,2; shows loss 0.5")
    'Each of ranks 0 and 2 waits for partners that do not come. The program prints: loss 0.5.'
    """
    return " ".join(map(_one_outcome, outcome.split("; "))) if outcome else ""


def _one_outcome(outcome: str) -> str:
    kind, _, rest = outcome.partition(" ")
    if kind not in _OUTCOMES_WITH:
        return _OUTCOMES.get(outcome, outcome)
    ranks, _, text = rest.partition(": ") if kind == "error" else (rest, "", rest)
    several = " and ".join(ranks.replace(",", ", ").rsplit(", ", 1))
    who = "every rank" if ranks == "all" else f"each of ranks {several}" if "," in ranks else f"rank {ranks}"
    said = _OUTCOMES_WITH[kind].format(who=who, text=text)
    return said[:1].upper() + said[1:]


def _sentence(text: str) -> str:
    text = _flow(text)
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith((".", ":")) else ".")


def _flow(text: str) -> str:
    return " ".join(text.split())
