"""Real files, spoiled: tokens, lines, bytes and pieces of the tree deleted, doubled, moved and exchanged.

`mutated(random)` draws a file and one to four changes of it. Everything comes from the given `random.Random`.
"""

from __future__ import annotations

import ast
import functools
import io
import random
import tokenize
import warnings
from collections.abc import Callable
from pathlib import Path

from ddp_audit.rule import load_rules

ROOT = Path(__file__).parents[2]
_EXPRESSIONS = (
    "None", "rank", "0", "-1", "model", "model.module", "dist.get_rank()", "dist.get_world_size()", "lambda *a, **k: (yield)", "[*a]",
    "{**k}", "(x := 3)", "x[::2, ...]", "await f()", "f'{x!r:>{w}}'", "not x", "a if b else c", "{i for i in j if k}", "...", "b'\\xff'",
    "1e999", "x @ y", "'\\ud800'", "super().__init__(*a)", "10 ** 10 ** 10", "'a' * 10 ** 12", "1 << 10 ** 9", "2 ** -1 % 0", "self",
)  # fmt: skip
_BLOCKS = (
    "if rank == 0:", "if x:", "for i in range(10 ** 9):", "while True:", "with model.no_sync():", "with open(p) as f, a:", "try:",
    "def f(*args, **kwargs):", "async def g():", "class C(*b, metaclass=M):", "async for i in j:", "async with q as r:",
)  # fmt: skip
_TOKENS = (
    "(",
    ")",
    ":",
    ",",
    "=",
    "if",
    "else",
    "return",
    "yield",
    "await",
    "lambda",
    "*",
    "**",
    "rank",
    "0",
    "'",
    '"""',
    "\\",
    "@",
    "global x",
)
_BYTES = (b"\x00", b"\xff", b"\x0c", b"\r", b"\t", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x1a", b"\\\n", b"#", b"\n\n")
_CODINGS = ("latin-1", "utf-8", "utf-16", "utf-7", "punycode", "rot13", "cp1252", "no-such-coding", "ascii", "shift_jis")


@functools.cache
def sources() -> tuple[str, ...]:
    """The files: the cases, the pages of the rules, the programs inside the rules' tests, the trainer and the examples."""
    folders = ("tests/cases", "trainer", "docs/example", "tests/explore/folklore")
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    texts += [text for rule in load_rules() for text in (rule.bad, rule.good)]
    for path in sorted((ROOT / "tests" / "rules").glob("*.py")):
        strings = [node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)]
        texts += [text for text in strings if isinstance(text, str) and text.count("\n") > 3 and "torch" in text]
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def mutated(random: random.Random) -> bytes:
    """A real file after some changes, as bytes."""
    return spoiled(random.choice(sources()), random)


def spoiled(text: str, random: random.Random) -> bytes:
    """A text after one to four changes, as bytes."""
    for _ in range(random.randint(1, 4)):
        text = random.choice(_TREE if random.random() < 0.7 else _RAW)(text, random)
    data = text.encode("utf-8", "surrogatepass")
    return random.choice(_SPOIL)(data, random) if random.random() < 0.15 else data


# The tree: places of nodes, so that most results can be parsed


def tree_of(text: str) -> ast.Module | None:
    """The tree of a text, None where it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _range(text: str, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Where a node begins and ends in the text."""
    lines = text.split("\n")

    def at(line: int, column: int) -> int:
        return sum(len(before) + 1 for before in lines[: line - 1]) + len(lines[line - 1].encode()[:column].decode(errors="ignore"))

    return at(node.lineno, node.col_offset), at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _expression(text: str, random: random.Random) -> str:
    """An expression in the place of another one."""
    tree = tree_of(text)
    nodes = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.expr) and not _inside_text(node)]
    if not nodes:
        return text
    start, end = _range(text, random.choice(nodes))
    if random.random() < 0.5:
        new = random.choice(_EXPRESSIONS)
    else:
        first, last = _range(text, random.choice(nodes))
        new = text[first:last]
    return f"{text[:start]}({new}){text[end:]}"


def _inside_text(node: ast.expr) -> bool:
    return isinstance(node, ast.FormattedValue) or not hasattr(node, "lineno")


def _statements(text: str) -> list[ast.stmt]:
    tree = tree_of(text)
    return [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _block(text: str, random: random.Random) -> str:
    """A statement inside another block."""
    nodes = _statements(text)
    if not nodes:
        return text
    node = random.choice(nodes)
    lines = text.split("\n")
    first, last = node.lineno - 1, node.end_lineno or node.lineno
    indent = " " * node.col_offset
    head = random.choice(_BLOCKS)
    tail = [f"{indent}except Exception as error:", f"{indent}    continue"] if head == "try:" else []
    return "\n".join([*lines[:first], indent + head, *("    " + line for line in lines[first:last]), *tail, *lines[last:]])


def _move(text: str, random: random.Random) -> str:
    """A statement deleted, doubled, or moved before another one, with its indentation."""
    nodes = _statements(text)
    if not nodes:
        return text
    node, other = random.choice(nodes), random.choice(nodes)
    lines = text.split("\n")
    first, last = node.lineno - 1, node.end_lineno or node.lineno
    own = [line[min(node.col_offset, len(line) - len(line.lstrip())) :] for line in lines[first:last]]
    at = other.lineno - 1
    new = [" " * other.col_offset + line for line in own]
    if random.random() < 0.3:
        return "\n".join([*lines[:first], " " * node.col_offset + "pass", *lines[last:]])
    if random.random() < 0.5 or first <= at < last:
        return "\n".join([*lines[:at], *new, *lines[at:]])
    kept = [*lines[:first], " " * node.col_offset + "pass", *lines[last:]]
    at -= (last - first - 1) * (at >= last)
    return "\n".join([*kept[:at], *new, *kept[at:]])


def _name(text: str, random: random.Random) -> str:
    """One name for another, everywhere."""
    tree = tree_of(text)
    names = [] if tree is None else sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    if not names:
        return text
    old, new = random.choice(names), random.choice(names)
    return "".join(new if part == old else part for part in _words(text))


def _words(text: str) -> list[str]:
    import re

    return re.split(r"(\W+)", text)


# The text


def _token(text: str, random: random.Random) -> str:
    """A token deleted, doubled, exchanged with another one, or replaced."""
    try:
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()]
    except (tokenize.TokenError, SyntaxError):
        return _line(text, random)
    if not tokens:
        return text
    token, other = random.choice(tokens), random.choice(tokens)
    lines = text.split("\n")
    row, column = token.start
    if token.end[0] != row or row > len(lines):
        return text
    new = random.choice(["", f"{token.string} {token.string}", other.string, random.choice(_TOKENS)])
    line = lines[row - 1]
    lines[row - 1] = line[:column] + new + line[token.end[1] :]
    return "\n".join(lines)


def _line(text: str, random: random.Random) -> str:
    """A line moved, deleted, doubled, or with another indentation."""
    lines = text.split("\n")
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    line = lines[at]
    change: Callable[[], object] = random.choice(
        [
            lambda: lines.insert(to, lines.pop(at)),
            lambda: lines.pop(at),
            lambda: lines.insert(to, line),
            lambda: lines.__setitem__(at, "    " + line),
            lambda: lines.__setitem__(at, line[4:]),
            lambda: lines.__setitem__(at, "\t" + line),
            lambda: lines.__setitem__(at, line + " # ddp-audit: ignore[" + random.choice(["DDP201]", "", "]", "x,y]", "DDP1"])),
        ]
    )
    change()
    return "\n".join(lines)


def _cut(text: str, random: random.Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _splice(text: str, random: random.Random) -> str:
    """The beginning of one file and the end of another."""
    lines, others = text.split("\n"), random.choice(sources()).split("\n")
    return "\n".join(lines[: random.randrange(len(lines) + 1)] + others[random.randrange(len(others)) :])


# The bytes


def _byte(data: bytes, random: random.Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(_BYTES) + data[at:]


def _ends(data: bytes, random: random.Random) -> bytes:
    return data.replace(b"\n", random.choice([b"\r\n", b"\r", b"\n\r", b"\x0b\n"]))


def _coding(data: bytes, random: random.Random) -> bytes:
    """A coding comment, true or not."""
    coding = random.choice(_CODINGS)
    text = f"# -*- coding: {coding} -*-\n# äöü\n" + data.decode("utf-8", "replace")
    if random.random() < 0.5:
        return text.encode("utf-8", "replace")
    return text.encode("utf-16" if coding == "utf-16" else "latin-1", "replace")


_TREE = (_expression, _expression, _block, _move, _name)
_RAW = (_token, _token, _line, _cut, _splice)
_SPOIL = (_byte, _ends, _coding)
