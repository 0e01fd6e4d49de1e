"""Finds the launch commands that files document: docstrings and comments, shell scripts, Markdown; each with its sentence."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ddp_audit.launch.command import read_command
from ddp_audit.launch.model import PYTHON, Launch, LaunchError, ProseClaim
from ddp_audit.launch.prose import claim_in

_WORTH_READING = re.compile(
    r"torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|srun|mpirun|mpiexec|horovodrun|python\d?\s+\S+\.py|python\d?\s+-m"
)
_ASSIGNMENTS = r"(?:[A-Za-z_][A-Za-z0-9_]*=(?:\"[^\"]*\"|'[^']*'|[^\s`\"']*)\s+)*"
_WRAPPER = r"(?:(?:uv run|poetry run|pipenv run|nohup|env|sudo|exec|time)\s+)*"
_LAUNCHER = (
    r"(?:torchrun|accelerate\s+launch|deepspeed|srun|mpirun|mpiexec|horovodrun"
    r"|(?:[\w./$}{]*/)?python[\d.]*\s+(?:-u\s+)?-m\s+(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch))"
)
_COMMAND = re.compile(rf"(?<![\w./-]){_ASSIGNMENTS}{_WRAPPER}{_LAUNCHER}(?=\s)")
_PYTHON_COMMAND = re.compile(rf"{_ASSIGNMENTS}{_WRAPPER}(?:[\w./]*/)?python[\d.]*\s+(?:-u\s+)?(?:-m\s+[\w.]+|[\w./-]+\.py)(?=\s|$)")
_LEAD = re.compile(r"\s*(?:(?:[-*+•]|\d+[.)])\s+)?(?:(?:[$%>#]\s+)|!\s*|>>>\s+)*")
_FENCE = re.compile(r"\s*(?:```|~~~|\.\. code|::\s*$)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line that may hold a command or a sentence. `code` marks a line of shell: no prose, unless it is a comment."""

    number: int
    column: int  # of the first character of `text`, from 1
    text: str
    code: bool = False

    @property
    def prose(self) -> str:
        return self.text.lstrip().lstrip("#") if self.text.lstrip().startswith("#") else ("" if self.code else self.text)


def documented_launches(text: str, path: str) -> list[Launch]:
    """The launches that a file documents, in order, each with `path`, lines, column and the claim of the sentence above it.

    `path` decides how the text is read: `.py`, Markdown (`.md`, `.rst`, `.txt`), and everything else as a shell script. A
    Python file that does not tokenize is read as far as it does.
    """
    if not _WORTH_READING.search(text):
        return []
    blocks = prose_lines(text, path)
    return sorted((found for block in blocks for found in _launches_of(block, path)), key=lambda f: (f.line or 0, f.column or 0))


def prose_lines(text: str, path: str) -> Iterator[list[Line]]:
    """The lines of a file that may hold commands or prose, in blocks that belong together: a docstring, a run of comment lines.

    Markdown and shell scripts are one block each.
    """
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in (".py", ".pyi"):
        yield from _python_blocks(text)
    elif suffix in (".md", ".markdown", ".rst", ".txt"):
        yield _markdown_lines(text)
    else:
        yield [Line(n, 1, t, code=not t.lstrip().startswith("#")) for n, t in enumerate(text.splitlines(), 1)]


def _python_blocks(text: str) -> Iterator[list[Line]]:
    """Each docstring (any string that is a statement) and each run of comment lines of a Python file."""
    lines = text.splitlines()
    comments: list[Line] = []
    statement_start = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                body = token.string.lstrip("#")
                line = Line(token.start[0], token.start[1] + 1 + len(token.string) - len(body), body)
                if comments and comments[-1].number + 1 != line.number:
                    yield comments
                    comments = []
                comments.append(line)
            elif token.type == tokenize.STRING and statement_start:
                yield _string_lines(lines, token)
            if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING):
                statement_start = True
            elif token.type not in (tokenize.COMMENT, tokenize.NL):
                statement_start = False
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass  # the parser reports a file that cannot be read; what came before it is still text
    if comments:
        yield comments


def _string_lines(lines: list[str], token: tokenize.TokenInfo) -> list[Line]:
    first, last = token.start[0], token.end[0]
    opening = re.match(r"[a-zA-Z]*(\"\"\"|'''|\"|')", token.string)
    skip = token.start[1] + (opening.end() if opening else 0)
    found: list[Line] = []
    for number in range(first, last + 1):
        text = lines[number - 1]
        start = skip if number == first else 0
        end = token.end[1] - (len(opening.group(1)) if opening else 0) if number == last else len(text)
        found.append(Line(number, start + 1, text[start:end]))
    return found


def _markdown_lines(text: str) -> list[Line]:
    found: list[Line] = []
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(?:```|~~~)", line):
            fenced = not fenced
            found.append(Line(number, 1, line))
        else:
            found.append(Line(number, 1, line, code=fenced))
    return found


@dataclass(slots=True)
class _Found:
    launch: Launch
    first: int  # indices into the block's lines
    last: int
    before: str  # the text before the command on its own line


def _launches_of(block: list[Line], path: str) -> Iterator[Launch]:
    found: list[_Found] = []
    index = 0
    while index < len(block):
        last = index
        while _continues(block[last].text) and last + 1 < len(block):
            last += 1
        for launch, before in _commands_in(block, index, last, path):
            found.append(_Found(launch, index, last, before))
        index = last + 1
    by_line = {n: f for f in found for n in range(f.first, f.last + 1)}
    for one in found:
        yield replace(one.launch, prose=_claim_for(one, block, by_line))


def _continues(text: str) -> bool:
    return text.rstrip().endswith("\\")


def _commands_in(block: list[Line], first: int, last: int, path: str) -> Iterator[tuple[Launch, str]]:
    """The commands of one logical line: at its start, in back quotes, or within a sentence where it names a Python file."""
    head = block[first].text
    rest = [re.sub(r"\\+\s*$", "", line.text) for line in block[first : last + 1]]
    joined = " ".join([rest[0], *(part.strip().lstrip("#").strip() for part in rest[1:])])
    lead = _LEAD.match(joined)
    start = lead.end() if lead else 0
    if (match := _PYTHON_COMMAND.match(joined, start)) and not _COMMAND.match(joined, start):
        matches = [match]
    else:
        matches = list(_COMMAND.finditer(joined))[:1] if "`" not in joined else list(_COMMAND.finditer(joined))
    for match in matches:
        if match.start() >= max(len(rest[0]), 1):
            continue  # begins on a continuation line, so it is an argument
        at_start = match.start() <= start or block[first].code
        quote = joined[match.start() - 1] if match.start() and joined[match.start() - 1] in "`\"'" else ""
        command = joined[match.start() :]
        if quote and quote in command:
            command = command[: command.index(quote)]
        try:
            launch = read_command(command, path, block[first].number)
        except LaunchError:
            continue
        if not block[first].code and not _is_script(launch, strict=not at_start):
            continue
        if not at_start or quote:
            if launch.kind == PYTHON:
                continue
            if not quote:
                launch = _without_sentence(launch)
        column = block[first].column + min(match.start(), len(head))
        before = "" if at_start else joined[: match.start()]
        yield replace(launch, column=column, end_line=block[last].number), before


def _is_script(launch: Launch, strict: bool) -> bool:
    """Whether what a command in prose starts looks like a script and not like the next word of a sentence."""
    script = launch.script or ""
    looks = r"\.py[.,;:)]*$" if strict else r"\.py\b|[/$<{\[]|^[A-Z_]+$"
    return launch.is_module or bool(re.search(looks, script))


def _without_sentence(launch: Launch) -> Launch:
    """A command in the middle of a sentence ends where the words go on as prose."""
    kept: list[str] = []
    for word in launch.script_args:
        after_option = bool(kept) and kept[-1].startswith("-") and "=" not in kept[-1]
        if not (word.startswith("-") or after_option or re.search(r"[=/$<{\[\d]|\.\w", word)):
            break
        kept.append(word)
    return replace(launch, script=(launch.script or "").rstrip(".,;:)"), script_args=tuple(kept))


def _claim_for(found: _Found, block: list[Line], by_line: dict[int, _Found]) -> ProseClaim | None:
    """The claim of the sentence before a command: on its line, in the paragraph above, or in one that ends with a colon."""
    if found.before:
        own = claim_in(found.before, block[found.first].number)
        if own is not None:
            return own if isinstance(own, ProseClaim) else None
    jumped = False
    index = found.first - 1
    while index >= 0:
        line = block[index]
        other = by_line.get(index)
        if other is not None:
            if not _same_job(other.launch, found.launch):
                return None
            index = other.first - 1
            continue
        if not line.text.strip():
            above = next((b.text.rstrip() for b in reversed(block[:index]) if b.text.strip()), "")
            if jumped or not above.endswith(":"):
                return None
            jumped = True
        elif not _FENCE.match(line.text):
            claim = claim_in(line.prose, line.number)
            if claim is not None:
                return claim if isinstance(claim, ProseClaim) else None
        index -= 1
    return None


def _same_job(first: Launch, second: Launch) -> bool:
    """Two commands of one job, typed on two of its nodes: one shape, different node ranks."""
    return (
        (first.nnodes, first.nproc_per_node) == (second.nnodes, second.nproc_per_node)
        and first.nnodes != 1
        and first.node_rank != second.node_rank
    )
