"""Finds the launch commands that files document: docstrings and comments, shell scripts, Markdown; each with its sentence."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from ddp_audit.launch.command import read_command
from ddp_audit.launch.launchers import UNSTATED
from ddp_audit.launch.model import PYTHON, SRUN, Launch, LaunchError, ProseClaim
from ddp_audit.launch.prose import claim_in
from ddp_audit.launch.shell import BatchJob, Setting, Variables, batch_job, makefile_as_shell
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source.documents import is_makefile
from ddp_audit.source.tokens import tokens_of

_WORTH_READING = lazy_compile(
    r"torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|srun|mpirun|mpiexec|horovodrun|(?:lightning|fabric) run"
    r"|python\d?\s+\S+\.py|python\d?\s+-m"
)
_ASSIGNMENTS = r"(?:[A-Za-z_][A-Za-z0-9_]*=(?:\"[^\"]*\"|'[^']*'|[^\s`\"']*)\s+)*"
_WRAPPER = r"(?:(?:uv run|poetry run|pipenv run|nohup|env|sudo|exec|time)\s+)*"
_LAUNCHER = (
    r"(?:torchrun|accelerate\s+launch|deepspeed|srun|mpirun|mpiexec|horovodrun|(?:lightning|fabric)\s+run"
    r"|(?:[\w./$}{]*/)?python[\d.]*\s+(?:-u\s+)?-m\s+(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch))"
)
_COMMAND = lazy_compile(rf"(?<![\w./-]){_ASSIGNMENTS}{_WRAPPER}{_LAUNCHER}(?=\s)")
_PYTHON_COMMAND = lazy_compile(
    rf"{_ASSIGNMENTS}{_WRAPPER}(?:[\w./]*/)?python[\d.]*\s+(?:-u\s+)?(?:-m\s+[\w.]+|[\w./-]+\.py)(?=\s|$)"
)
_MANIFESTS = (".yaml", ".yml", ".json")
_LEAD = lazy_compile(r"\s*(?:(?:[-*+•]|\d+[.)])\s+)?(?:(?:[$%>#]\s+)|!\s*|>>>\s+)*")
_MARKDOWN = (".md", ".markdown", ".rst", ".txt")
_SETTING = lazy_compile(r"(?:export\s+)?[A-Za-z_]\w*=\S*(?:\s+[A-Za-z_]\w*=\S*)*\s*(?:#.*)?$|export\s+[A-Za-z_]\w*=")
_OPEN_VALUE = lazy_compile(r"\s*(?:(?:export|local|readonly|declare(?:\s+-\w+)*)\s+)?[A-Za-z_]\w*\+?=([\"'(])")
_FENCE = lazy_compile(r"\s*(?:```|~~~|\.\. code|::\s*$)")


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

    `path` decides how the text is read: `.py`, Markdown (`.md`, `.rst`, `.txt`), YAML and JSON with the containers or editor
    configurations of a job, Makefiles, and everything else as a shell script. A file that is broken is read as far as it goes.
    """
    if not _WORTH_READING.search(text):
        return []
    if PurePosixPath(path).suffix.lower() in _MANIFESTS:
        from ddp_audit.launch.manifests import manifest_launches  # YAML costs 20 ms to import

        return manifest_launches(text, path)
    if is_makefile(PurePosixPath(path).name):
        text = makefile_as_shell(text)
    batch = batch_job(text.splitlines(), path) if "#SBATCH" in text else BatchJob()
    blocks = prose_lines(text, path)
    found = (replace(one, block=number) for number, block in enumerate(blocks, 1) for one in _launches_of(block, path, batch))
    return sorted(found, key=lambda one: (one.line or 0, one.column or 0))


def script_launches(text: str, path: str, known: Mapping[str, Setting], first_line: int) -> list[Launch]:
    """The launches of a piece of shell that starts at a line of another file, under variables that are known there."""
    if not _WORTH_READING.search(text):
        return []
    lines = [Line(n, 1, t, code=not t.lstrip().startswith("#")) for n, t in enumerate(text.splitlines(), first_line)]
    return list(_launches_of(lines, path, BatchJob(), known))


def prose_lines(text: str, path: str) -> Iterator[list[Line]]:
    """The lines of a file that may hold commands or prose, in blocks that belong together: a docstring, a run of comment lines.

    Markdown and shell scripts are one block each.
    """
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in (".py", ".pyi"):
        yield from _python_blocks(text)
    elif suffix in _MARKDOWN:
        yield _markdown_lines(text)
    else:
        yield [Line(n, 1, t, code=not t.lstrip().startswith("#")) for n, t in enumerate(text.splitlines(), 1)]


def _python_blocks(text: str) -> Iterator[list[Line]]:
    """Each docstring (any string that is a statement) and each run of comment lines of a Python file."""
    lines = text.splitlines()
    comments: list[Line] = []
    statement_start = True
    try:
        for token in tokens_of(text):
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


def _launches_of(
    block: list[Line], path: str, batch: BatchJob, known: Mapping[str, Setting] = MappingProxyType({})
) -> Iterator[Launch]:
    found: list[_Found] = []
    index = 0
    variables, folder = Variables(path, {**batch.variables(), **known}), ""
    while index < len(block):
        last = _last_of(block, index)
        line = block[index]
        if not line.code and line.text.startswith("#") and PurePosixPath(path).suffix.lower() in _MARKDOWN:
            variables, folder = Variables(path), ""
        joined = _joined(block, index, last)
        for launch, before in _commands_in(block, index, last, path, variables):
            launch = replace(_in_batch(launch, batch), folder=launch.folder or folder)
            # `COMMAND="torchrun .."` and then `srun bash -c "$COMMAND"`: what the variable holds is started there.
            found = [one for one in found if not (_sets_command(block[one.first].text) and _is_command_of(one.launch, launch))]
            found.append(_Found(launch, index, last, before))
        bare = _LEAD.sub("", joined, count=1) if not line.code else joined
        if line.code or _SETTING.match(bare):
            variables.see(bare, line.number)
        if moved := re.match(r"\s*cd\s+([\w./-]+)\s*(?:#.*)?$", bare):
            folder = moved.group(1)
        index = last + 1
    by_line = {n: f for f in found for n in range(f.first, f.last + 1)}
    for one in found:
        yield replace(one.launch, prose=_claim_for(one, block, by_line))


def _sets_command(text: str) -> bool:
    """Whether a line keeps a command in a variable."""
    return bool(re.match(r"\s*(?:export\s+)?[A-Za-z_]\w*=[\"'(]", text))


def _is_command_of(held: Launch, started: Launch) -> bool:
    return all(getattr(held, name) == getattr(started, name) for name in ("nnodes", "nproc_per_node", "script", "script_args"))


def _in_batch(launch: Launch, batch: BatchJob) -> Launch:
    """A launch of a batch script, with what srun takes from the directives where it is given nothing itself."""
    if not batch.is_one:
        return launch
    origins = dict(launch.origins)
    if launch.kind == SRUN and launch.world_size is None:
        nodes = launch.nnodes if isinstance(launch.nnodes, int) else batch.nodes or 1
        per_node = launch.nproc_per_node if isinstance(launch.nproc_per_node, int) else batch.tasks_per_node
        total = batch.all_tasks() if per_node is None else nodes * per_node
        if per_node is None and total is not None and total % nodes == 0:
            per_node = total // nodes
        if launch.nnodes == UNSTATED:
            origins["nnodes"] = batch.places.get("nodes", "sbatch's default")
        if launch.nproc_per_node == UNSTATED:
            origins["nproc_per_node"] = batch.places.get("ntasks-per-node", batch.places.get("ntasks", "srun's default"))
        launch = replace(launch, nnodes=nodes, nproc_per_node=per_node or UNSTATED, world_size=total, nnodes_stated=True)
    elif launch.through == SRUN and launch.tasks is None:
        launch = replace(launch, tasks=batch.all_tasks(), tasks_per_node=launch.tasks_per_node or batch.tasks_per_node)
    if launch.through == SRUN and launch.given_nodes is None and batch.nodes is not None:
        launch = replace(launch, given_nodes=batch.nodes, nodes_from=batch.places["nodes"])
    if launch.given_gpus is None and batch.gpus_per_node is not None:
        launch = replace(launch, given_gpus=batch.gpus_per_node, gpus_from=batch.places["gpus"])
    return replace(launch, origins=origins)


def _continues(text: str) -> bool:
    return text.rstrip().endswith("\\")


def _last_of(block: list[Line], first: int) -> int:
    """The index of the last line of the logical line that starts at `first`: continuations, and quotations that go on."""
    last = first
    opening = _OPEN_VALUE.match(block[first].text) if block[first].code else None
    if opening is not None:
        mark = {"(": ")"}.get(opening.group(1), opening.group(1))
        rest = block[first].text[opening.end() :]
        while not _closes(rest, mark) and last + 1 < min(len(block), first + 60):
            last += 1
            rest = block[last].text
        if _closes(rest, mark):
            return last
        last = first
    while _continues(block[last].text) and last + 1 < len(block):
        last += 1
    return last


def _closes(text: str, mark: str) -> bool:
    return mark in re.sub(r"\\.", "", text)


def _joined(block: list[Line], first: int, last: int) -> str:
    parts = [re.sub(r"\\+\s*$", "", line.text) for line in block[first : last + 1]]
    if last > first and block[first].code and (opening := _OPEN_VALUE.match(parts[0])) and opening.group(1) == "(":
        parts = [re.sub(r"(?:^|\s)#.*$", "", part) for part in parts]
    return " ".join([parts[0], *(part.strip().lstrip("#").strip() for part in parts[1:])])


def _commands_in(block: list[Line], first: int, last: int, path: str, variables: Variables) -> Iterator[tuple[Launch, str]]:
    """The commands of one logical line: at its start, in back quotes, or within a sentence where it names a Python file.

    Variables that the lines before set are put in; what they leave open stays as it is written.
    """
    head = block[first].text
    plain = _joined(block, first, last)
    joined, used = variables.expand(plain) if "$" in plain else (plain, [])
    at_most = len(re.sub(r"\\+\s*$", "", head)) + len(joined) - len(plain)
    lead = _LEAD.match(joined)
    start = lead.end() if lead else 0
    if (match := _PYTHON_COMMAND.match(joined, start)) and not _COMMAND.match(joined, start):
        matches = [match]
    else:
        matches = list(_COMMAND.finditer(joined))[:1] if "`" not in joined else list(_COMMAND.finditer(joined))
    for match in matches:
        if match.start() >= max(at_most, 1) and not used:
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
        column = block[first].column + (min(match.start(), len(head)) if not used else len(head) - len(head.lstrip()))
        before = "" if at_start else joined[: match.start()]
        moved = re.search(r"\bcd\s+([\w./-]+)\s*(?:&&|;)\s*$", joined[: match.start()])
        origins = _with_variables(launch.origins, plain, used)
        folder = moved.group(1) if moved else ""
        yield replace(launch, column=column, end_line=block[last].number, origins=origins, folder=folder), before


def _with_variables(origins: Mapping[str, str], plain: str, used: Sequence[Setting]) -> dict[str, str]:
    """Where each number came from, with the variables that held it."""
    return {name: _told(origin, plain, used) if used and origin.startswith("-") else origin for name, origin in origins.items()}


def _told(origin: str, plain: str, used: Sequence[Setting]) -> str:
    option = re.escape(re.split(r"[= ]", origin, maxsplit=1)[0])
    typed = re.search(rf"(?:^|[\s\"'(]){option}(?:=|\s+)(\S+)", plain)
    if typed is not None:
        names = {match.group(1) for match in re.finditer(r"\$\{?(\w+)", typed.group(1))}
        held = list(dict.fromkeys(str(setting) for setting in used if setting.name in names))
        return f"{origin}, with {'; '.join(held)}" if held else origin
    for setting in used:
        if re.search(rf"(?:^|[\s\"'(]){option}(?:=|\s+)", setting.text or ""):
            inner = _told(origin, setting.raw, setting.used) if setting.used else origin
            return f"{inner} in {setting.name} ({setting.where})"
    return origin


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
        if not _is_seen(line):
            index = next((i for i in range(index, -1, -1) if _is_seen(block[i])), -1)
            if jumped or index < 0 or not block[index].text.rstrip().endswith(":"):
                return None
            jumped = True
            continue
        if not _FENCE.match(line.text):
            claim = claim_in(line.prose, line.number)
            if claim is not None:
                return claim if isinstance(claim, ProseClaim) else None
        index -= 1
    return None


def _is_seen(line: Line) -> bool:
    """Whether a reader sees something of a line: it is neither empty nor a comment of Markdown."""
    text = line.text.strip()
    return bool(text) and not (text.startswith("<!--") and text.endswith("-->"))


def _same_job(first: Launch, second: Launch) -> bool:
    """Two commands of one job, typed on two of its nodes: one shape, different node ranks."""
    return (
        (first.nnodes, first.nproc_per_node) == (second.nnodes, second.nproc_per_node)
        and first.nnodes != 1
        and first.node_rank != second.node_rank
    )
