"""One Python file: bytes to text to tree, and what went wrong on the way in one clear line. Nothing is ever executed."""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ddp_audit.findings import Span
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source import dependency_log
from ddp_audit.source.deep_stack import run_with_deep_stack
from ddp_audit.source.notebook import SUFFIX, Notebook, read_notebook
from ddp_audit.source.paths import display_path
from ddp_audit.source.problems import SourceError
from ddp_audit.source.reading import read_regular

AnyNode = TypeVar("AnyNode", bound=ast.AST)
Fact = TypeVar("Fact")


@dataclass(slots=True, eq=False)
class SourceFile:
    """A parsed file. `path` is relative to the working directory with forward slashes where the file lies below it.

    `lines` are split as Python's grammar splits them (form feeds and Unicode separators do not end a line), `module` is the
    dotted name under which the project imports the file, or its stem for a script. A text that is known to parse is only parsed
    when its tree is asked for.
    """

    path: str
    abspath: str
    text: str
    lines: list[str]
    module: str
    notebook: Notebook | None = None  # where the text is the code of one
    parsed: ast.Module | None = field(default=None, repr=False)
    facts: dict[tuple[str, ast.AST], Any] = field(default_factory=dict, repr=False)  # what `fact` was asked
    _ascii: bool = field(init=False, repr=False)
    _spans: dict[ast.AST, Span] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._ascii = self.text.isascii()

    @property
    def tree(self) -> ast.Module:
        if self.parsed is None:
            self.parse()
        assert self.parsed is not None
        return self.parsed

    def parse(self) -> None:
        """Make the tree. Raises SourceError."""
        try:
            self.parsed = parse_text(self.text, self.path)
        except SourceError as error:
            if self.notebook is None or error.line is None:
                raise
            raise _in_cell(error, self.notebook) from None
        if self.notebook is not None:
            self.notebook.mark(self.parsed)

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its end; empty outside the file."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def column(self, line: int, byte_offset: int) -> int:
        """The column, counted from 1 in characters, of one of ast's UTF-8 byte offsets."""
        if self._ascii:
            return byte_offset + 1
        return len(self.line(line).encode()[:byte_offset].decode(errors="ignore")) + 1

    def fact(self, name: str, node: AnyNode, find: Callable[[AnyNode], Fact]) -> Fact:
        """What `find` says of a node of the tree, found once: every entry that leads into a file asks the same of it."""
        key = (name, node)
        known: Fact | None = self.facts.get(key)
        if known is None:
            known = self.facts[key] = find(node)
        return known

    def span(self, node: ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias) -> Span:
        """The place of a node."""
        known = self._spans.get(node)
        if known is not None:
            return known
        end_line = node.end_lineno or node.lineno
        end_offset = node.col_offset if node.end_col_offset is None else node.end_col_offset
        start = self.column(node.lineno, node.col_offset)
        made = self._spans[node] = Span(self.path, node.lineno, start, end_line, self.column(end_line, end_offset))
        return made


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file. Raises SourceError."""
    try:
        data = read_regular(path)
        dependency_log.content(path, data)
        return data
    except FileNotFoundError:
        raise SourceError(display_path(path), None, "no such file or directory") from None
    except IsADirectoryError:
        raise SourceError(display_path(path), None, "is a directory") from None
    except PermissionError:
        raise SourceError(display_path(path), None, "cannot be read: permission denied") from None
    except OSError as error:
        raise SourceError(display_path(path), None, f"cannot be read: {error.strerror or error}") from None


def decode(data: bytes, shown: str) -> str:
    """Text of a Python file by the rules of PEP 263 (byte order mark, coding comment, otherwise UTF-8), with `\\n` line ends.

    Raises SourceError with the line of the first byte that does not decode.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        # detect_encoding decodes the first two lines: with a bad byte there it complains of a missing declaration.
        line = _line_of_bad_byte(data)
        text = str(error.msg)
        if "encoding problem" in text or "unknown encoding" in text:
            raise SourceError(shown, 1, f"the coding comment names an encoding that is not usable here ({text})") from None
        raise SourceError(shown, line, "is not UTF-8 and has no coding comment") from None
    try:
        if (
            encoding != "utf-8-sig" and "#".encode(encoding) != b"#"
        ):  # the comment itself could not be read in it, and Python refuses such
            raise SourceError(shown, 1, f"the coding comment names {encoding}, in which no source can be written")
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        known = "is not UTF-8 and has no coding comment" if encoding in ("utf-8", "utf-8-sig") else f"is not {encoding}"
        raise SourceError(shown, line, known) from None
    except UnicodeError:  # codecs such as punycode that name no position
        raise SourceError(shown, 1, f"is not {encoding}") from None
    except LookupError:
        raise SourceError(shown, 1, f"the coding comment names an unknown encoding: {encoding}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line_of_bad_byte(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return 1


def parse_text(text: str, shown: str) -> ast.Module:
    """The tree of a file's text. Raises SourceError where Python cannot parse it, or the tree would take too much memory."""
    _check_size(text, shown)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are other tools' business
            return run_with_deep_stack(lambda: ast.parse(text, filename=shown))
    except SyntaxError as error:  # IndentationError and TabError too
        message = error.msg or "invalid syntax"
        if "null bytes" in message:
            raise SourceError(shown, None, "contains null bytes") from None
        if "too many" not in message and _is_newer_python(text):  # limits hold for every Python
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            message = f"{message} for the Python {version} that runs ddp-audit; a newer one reads it"
        raise SourceError(shown, error.lineno or None, message) from None
    except UnicodeEncodeError:  # a notebook's JSON can hold such
        raise SourceError(shown, None, "contains half of a character (a lone surrogate)") from None
    except ValueError as error:  # null bytes, in some versions
        message = "contains null bytes" if "null" in str(error) else str(error)
        raise SourceError(shown, None, message) from None
    except (RecursionError, MemoryError):
        raise SourceError(shown, None, "is nested too deeply to be parsed") from None


MOST_TOKENS = 500_000  # a tree takes about a kilobyte for each
_TOKEN = lazy_compile(
    r"\'\'\'.*?\'\'\'|\"\"\".*?\"\"\"|\'(?:[^\'\\\n]|\\.)*\'|\"(?:[^\"\\\n]|\\.)*\"|#[^\n]*|\w+|[^\w\s]", re.DOTALL
)


def _check_size(text: str, shown: str) -> None:
    """Raises SourceError where a text has more tokens than a tree may be made of, about."""
    if len(text) > MOST_TOKENS and next(itertools.islice(_TOKEN.finditer(text), MOST_TOKENS, None), None) is not None:
        raise SourceError(shown, None, f"is too large to be audited: it has more than {MOST_TOKENS:,} tokens")


def check_text(text: str, shown: str) -> None:
    """Raises SourceError where `parse_text` does. A third of what that takes: no tree of objects is made."""
    import symtable  # which the audit of a script does not need

    _check_size(text, shown)  # the parser itself takes gigabytes for a text of megabytes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # What makes a table of symbols has parsed the text; it refuses some texts more, which the parser has the last word on.
            symtable.symtable(text, shown, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parse_text(text, shown)


_READ_BY_LIBCST = "import sys, libcst; libcst.parse_module(sys.stdin.buffer.read())"
_newer_asked = itertools.count()
_MOST_ASKED = 5  # files of one audit; a tree of Python 2 must not be parsed twice


def _is_newer_python(text: str) -> bool:
    """Whether text that this Python cannot parse is right for a newer one, by a parser that knows all of them.

    In a process of its own: that parser overflows its stack on deep nesting. Isolated (-I): a file of the audited project that is
    called as a module of the parser is not imported from the working directory.
    """
    if next(_newer_asked) >= _MOST_ASKED:
        return False
    import subprocess

    try:
        asked = subprocess.run(
            [sys.executable, "-I", "-c", _READ_BY_LIBCST], input=text.encode(), capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeEncodeError):
        return False
    return asked.returncode == 0


def parse_file(path: Path, module: str, data: bytes | None = None, *, parses: bool = False) -> SourceFile:
    """Reads and parses one file, Python or a notebook; where it is known that it parses, later. Raises SourceError."""
    shown = display_path(path)
    data = read_bytes(path) if data is None else data
    notebook = read_notebook(data, shown) if path.suffix == SUFFIX else None
    text = decode(data, shown) if notebook is None else notebook.text
    file = SourceFile(shown, os.path.abspath(path), text, text.split("\n"), module, notebook)
    if not parses:
        file.parse()
    return file


def _in_cell(error: SourceError, notebook: Notebook) -> SourceError:
    """An error in the joined code of a notebook as one of the first cell that cannot be parsed by itself.

    The parser's messages name lines ("expected an indented block after 'if' statement on line 3"); those are then of the cell.
    """
    assert error.line is not None
    cell, line = notebook.place(error.line)
    message = error.message
    lines = notebook.text.split("\n")
    ends = [start - 1 for start, _ in notebook.starts[1:]] + [len(lines)]
    for (start, number), end in zip(notebook.starts, ends, strict=True):
        try:
            parse_text("\n".join(lines[start - 1 : end]), error.path)
        except SourceError as alone:
            if alone.line is not None:
                cell, line, message = number, alone.line, alone.message
                break
    return SourceError(error.path, line, message, cell, file_line=notebook.file_line(cell, line))


__all__ = ["SourceError", "SourceFile", "check_text", "decode", "display_path", "parse_file", "parse_text", "read_bytes"]
