"""Suppression comments: `# ddp-audit: ignore[DDP401] reason` and `# ddp-audit: ignore-file[...]`.

A comment on the first or last line of a statement, or alone on the line above it, holds for findings in that statement's lines;
of a compound statement that is its header. On a line in between it holds for that line, and for the first one where a bracket
ends that: there formatters leave the comment of a first line that they break. Comments are found by tokens, so the same text in
a string does nothing.
"""

from __future__ import annotations

import itertools
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from ddp_audit.findings import Finding, Fix, Span
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source.files import SourceFile
from ddp_audit.source.tokens import tokens_of

WITHOUT_CODE = ("DDP901", "suppression-without-code")
UNKNOWN = ("DDP902", "unknown-suppression")
UNUSED = ("DDP903", "unused-suppression")

MARK = "ddp-audit:"
_BETWEEN = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)  # statements
_COMMENT = lazy_compile(r"#\s*ddp-audit:\s*(?P<verb>ignore-file|ignore)\b(?P<codes>\s*\[(?P<list>[^\]]*)\])?")

_MOST_NAMES = 256  # of one comment, more than there are rules; each that is wrong is a finding with the line in it


@dataclass(slots=True)
class Suppression:
    """One comment. `names` are codes or rule names as written, `lines` the lines that it holds for."""

    span: Span
    names: tuple[str, ...]
    whole_file: bool
    lines: Collection[int]
    used: set[str] = field(default_factory=set)
    text: str = ""
    at_end: bool = False  # holds for findings that end in its lines too: those of documents go from a sentence to a command

    def covers(self, finding: Finding) -> str | None:
        """The name in the comment that suppresses the finding, if any."""
        places = (finding.span.line, finding.span.end_line) if self.at_end else (finding.span.line,)
        if not self.whole_file and not any(line in self.lines for line in places):
            return None
        for name in self.names:
            if name.upper() == finding.code or name.lower() == finding.name:
                return name
        return None


def suppressions(file: SourceFile) -> list[Suppression]:
    """The suppression comments of a file, in order."""
    found = python_suppressions(file.text, file.path)
    if file.notebook is not None:
        place = file.notebook.place
        for comment in found:  # a comment at the end of a cell does not hold for the first statement of the next one
            cell = place(comment.span.line)[0]
            comment.lines = [line for line in comment.lines if place(line)[0] == cell]
    return found


def python_suppressions(text: str, path: str) -> list[Suppression]:
    """The suppression comments of a Python text, in order."""
    if MARK not in text:
        return []
    written = text.split("\n")
    found: list[Suppression] = []
    for comment, lines in _comments(text):
        match = _COMMENT.search(comment.string)
        if match is None:
            continue
        line, column = comment.start
        span = Span(path, line, column + match.start() + 1, line, column + match.end() + 1)
        found.append(suppression_of(match, span, lines, written[line - 1].strip()))
    return found


def suppression_of(match: re.Match[str], span: Span, lines: Collection[int], text: str) -> Suppression:
    """The suppression that a comment says, of a match with the groups `verb` and `list`."""
    every = dict.fromkeys(name.strip() for name in (match["list"] or "").split(",") if name.strip())
    names = tuple(itertools.islice(every, _MOST_NAMES))
    return Suppression(span, names, match["verb"] == "ignore-file", lines, text=text)


def apply(findings: Iterable[Finding], comments: Collection[Suppression]) -> tuple[list[Finding], list[Finding]]:
    """(kept, suppressed) of one file's findings; marks the names that were used."""
    kept: list[Finding] = []
    suppressed: list[Finding] = []
    for finding in findings:
        hits = [(comment, name) for comment in comments if (name := comment.covers(finding)) is not None]
        for comment, name in hits:
            comment.used.add(name)
        (suppressed if hits else kept).append(finding)
    return kept, suppressed


def complaints(comments: Iterable[Suppression], known: Collection[str], expected: Collection[str]) -> Iterator[Finding]:
    """What is wrong with the comments themselves.

    `known` holds every code and name there is; `expected` those of the rules that ran here, so that a comment for a rule that
    was not selected does not count as unused.
    """
    for comment in comments:
        verb = "ignore-file" if comment.whole_file else "ignore"
        if not comment.names:
            yield _complaint(
                WITHOUT_CODE,
                comment,
                "This suppression names no rule, so it suppresses nothing.",
                f"name the rules in brackets: # ddp-audit: {verb}[DDP401]",
            )
        for name in comment.names:
            if name.upper() not in known and name.lower() not in known:
                yield _complaint(
                    UNKNOWN,
                    comment,
                    f"This suppression names '{name}', which is not a rule.",
                    "use a code or name that `ddp-audit rules` lists",
                )
            elif name not in comment.used and (name.upper() in expected or name.lower() in expected):
                where = "in this file" if comment.whole_file else "here"
                yield _complaint(
                    UNUSED,
                    comment,
                    f"This suppression of '{name}' suppresses nothing: the rule reports nothing {where}.",
                    "delete the comment, or the name in it",
                )


def first_lines(text: str, lines: Collection[int]) -> dict[int, int]:
    """For each of some lines, the first one of the statement (of a compound one: of its header) that holds it, where one does."""
    waiting = sorted(set(lines), reverse=True)
    found: dict[int, int] = {}
    first: int | None = None
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokens_of(text):
            if not waiting:
                break
            if token.type == tokenize.NEWLINE:
                while waiting and waiting[-1] <= token.start[0]:
                    line = waiting.pop()
                    if first is not None and first <= line:
                        found[line] = first
                first = None
            elif first is None and token.type not in _BETWEEN:
                first = token.start[0]
    return found


def _complaint(kind: tuple[str, str], comment: Suppression, message: str, remedy: str) -> Finding:
    code, name = kind
    return Finding(
        code=code,
        name=name,
        severity="warning",
        confidence="certain",
        span=comment.span,
        message=message,
        fix=Fix("display-only", remedy),
        source_line=comment.text,
    )


def _comments(text: str) -> Iterator[tuple[tokenize.TokenInfo, Collection[int]]]:
    """Each comment that mentions the tool, with the lines of the statement that it belongs to."""
    waiting: list[tokenize.TokenInfo] = []  # alone on their lines, or above in a stack of comments and decorators
    inside: list[tokenize.TokenInfo] = []  # in the statement at hand
    first: int | None = None
    decorated: list[tokenize.TokenInfo] = []
    decorated_from = 0
    is_decorator = False
    opened = False  # whether the first line of the statement ends with an opening bracket
    try:
        for token in tokens_of(text):
            if token.type == tokenize.COMMENT:
                if MARK in token.string:
                    (waiting if first is None else inside).append(token)
            elif token.type == tokenize.NEWLINE:
                assert first is not None
                last = token.start[0]
                ends = {first, last}
                held = waiting + decorated
                held += [comment for comment in inside if comment.start[0] in ends]
                for comment in inside:
                    line = comment.start[0]
                    if line not in ends:  # on an inner line of the statement: for that line alone
                        # Formatters break `f(a, b,  # comment` after the bracket, and leave the comment with `b`.
                        yield comment, (first, line) if opened else (line,)
                begin = min(first, decorated_from or first)
                if is_decorator:
                    decorated, decorated_from = held, begin
                else:
                    for comment in held:
                        yield comment, range(begin, last + 1)
                    decorated, decorated_from = [], 0
                waiting, inside, first, is_decorator, opened = [], [], None, False, False
            elif token.type in _BETWEEN:
                if token.type == tokenize.NL and first is None and waiting and not token.line.strip():
                    # A blank line parts a comment from what follows: it belongs to nothing.
                    for comment in waiting:
                        yield comment, range(0)
                    waiting = []
            elif first is None:
                first = token.start[0]
                is_decorator = token.type == tokenize.OP and token.string == "@"
            if first == token.start[0] and token.type not in _BETWEEN:
                opened = token.type == tokenize.OP and token.string in ("(", "[", "{")
    except (tokenize.TokenError, SyntaxError):  # ast read the file, so at most its very end is odd
        pass
    for comment in waiting + decorated + inside:
        yield comment, range(0)
