"""Bytes to text to tree, and the one clear line where that fails."""

from __future__ import annotations

import ast
import itertools
import os
import symtable
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddp_audit.source import files
from ddp_audit.source.files import SourceError, parse_file


def parse(tmp_path: Path, data: bytes, name: str = "script.py"):
    path = tmp_path / name
    path.write_bytes(data)
    return parse_file(path, "script")


def failure(tmp_path: Path, data: bytes) -> tuple[int | None, str]:
    with pytest.raises(SourceError) as caught:
        parse(tmp_path, data)
    assert "\n" not in str(caught.value)
    return caught.value.line, caught.value.message


def test_byte_order_mark_crlf_and_form_feed(tmp_path: Path) -> None:
    file = parse(tmp_path, b"\xef\xbb\xbfa = 1\r\n\x0cb = 2\r\n")
    assert [node.lineno for node in file.tree.body] == [1, 2]
    assert file.line(2) == "\x0cb = 2"


def test_coding_comment(tmp_path: Path) -> None:
    file = parse(tmp_path, "# -*- coding: latin-1 -*-\nname = 'größe'\n".encode("latin-1"))
    assert file.line(2) == "name = 'größe'"


def test_columns_count_characters(tmp_path: Path) -> None:
    file = parse(tmp_path, "ö = 'ü'; b = f(1)\n".encode())
    statement = file.tree.body[1]
    assert isinstance(statement, ast.Assign)
    span = file.span(statement.value)
    assert (span.line, span.column, span.end_column) == (1, 14, 18)
    assert file.line(1)[span.column - 1 : span.end_column - 1] == "f(1)"


def test_syntax_error_has_its_line(tmp_path: Path) -> None:
    line, message = failure(tmp_path, b"a = 1\nb = (\ndef f(:\n")
    assert line in (2, 3)
    assert message


def test_python_2(tmp_path: Path) -> None:
    line, _ = failure(tmp_path, b"import os\nprint 'hello'\n")
    assert line == 2


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    assert failure(tmp_path, b"a = 1\nb = 2\nc = 3\nname = '\xe9t\xe9'\n") == (4, "is not UTF-8 and has no coding comment")
    assert failure(tmp_path, b"name = '\xe9t\xe9'\n") == (1, "is not UTF-8 and has no coding comment")


def test_unknown_encoding(tmp_path: Path) -> None:
    line, message = failure(tmp_path, b"# coding: no-such-thing\na = 1\n")
    assert line == 1
    assert "encoding" in message


def test_null_bytes(tmp_path: Path) -> None:
    _, message = failure(tmp_path, b"a = 1\n\x00\n")
    assert "null bytes" in message


def test_nested_too_deeply(tmp_path: Path) -> None:
    _, message = failure(tmp_path, b"a = " + b"-" * 100_000 + b"1\n")
    assert "nested" in message
    _, message = failure(tmp_path, b"a = " + b"(" * 5_000 + b")" * 5_000 + b"\n")
    assert "nested" in message


def test_missing_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.py", tmp_path):
        with pytest.raises(SourceError):
            parse_file(path, "script")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "secret.py"
    path.write_text("a = 1\n")
    path.chmod(0)
    with pytest.raises(SourceError, match="permission denied"):
        parse_file(path, "script")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads it")
def test_text_for_a_newer_python_is_told_from_broken_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_newer_asked", itertools.count())
    line, message = failure(tmp_path, b'name = {"a": 1}\nprint(f"{name["a"]}")\n')
    assert line == 2 and message.endswith("a newer one reads it")
    assert "newer" not in failure(tmp_path, b"def f(:\n")[1]


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\n", "def f(a, a): pass\n", "nonlocal a\n", "return 1\n", "def f():\n    a = 1\n    global a\n", "a = '\\d'\n", "a = (\n",
        "\tif a:\n        b\n", "a = 1\0\n", "a = '\ud800'\n", "(" * 300 + ")" * 300, "a = " + "-" * 3_000 + "1\n", "a = 1 +\n" * 3, "print 'a'\n",
    ],
)  # fmt: skip
def test_a_check_alone_says_what_parsing_says(text: str) -> None:
    def said(call: Callable[[str, str], object]) -> object:
        try:
            call(text, "a.py")
        except SourceError as error:
            return str(error)
        return None

    assert said(files.check_text) == said(files.parse_text)


def test_a_text_with_too_many_tokens_does_not_reach_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes gigabytes for a text of megabytes, and an editor's text is checked before its audit."""

    def parsed(*_: object) -> None:
        raise AssertionError("was parsed")

    monkeypatch.setattr(symtable, "symtable", parsed)
    with pytest.raises(SourceError, match="too large to be audited"):
        files.check_text("x\n" * (files.MOST_TOKENS + 1), "a.py")
    with pytest.raises(AssertionError, match="was parsed"):
        files.check_text("x\n" * (files.MOST_TOKENS // 3), "a.py")
