"""What is told of a file by its bytes alone: whether it matters, and what its import statements name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddp_audit.source.prefilter import PACKAGE, import_words, is_plain_test

STATEMENTS = {
    "import a": {b"a"},
    "import a.b as c, d": {b"a", b"b", b"d"},
    "from a.b import c": {b"a", b"b", b"c"},
    "from a import (b,  # not ) here\n    c,\n    d)\nimport e": {b"a", b"b", b"c", b"d", b"e"},
    "from a import \\\n    b, \\\n    c": {b"b", b"c"},
    "from a import \\\n    (b,\n     c)": {b"b", b"c"},
    "from a.\\\n    b \\\n    import c": {b"a", b"b", b"c"},
    "from a.\\\r\n    b import c\r\nx = 1": {b"a", b"b", b"c"},
    "from a.\\\r    b import c\rx = 1": {b"a", b"b", b"c"},
    "x = 1; import a; from b import(c); import d": {b"a", b"b", b"c", b"d"},
    "if x:\n\timport a": {b"a"},
    "from .import_utils import (a,\n    b)": {b"import_utils", b"a", b"b"},
    "from . import a": {PACKAGE, b"a"},
    "from \\\n .. import(a)": {PACKAGE, b"a"},
    "from .a import b": {b"a", b"b"},
    "import größe": {"größe".encode()},
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_the_words_of_import_statements(text: str) -> None:
    ast.parse(text)
    assert STATEMENTS[text] <= import_words(text.encode())


def test_other_words_are_left_out() -> None:
    words = import_words(b"a = 'b'\nimport c\nd = e(f)\nimportant = g\nreimport = h\nfrom .i import j\nk = [\n  l]\n")
    assert words & {b"a", b"b", b"d", b"e", b"f", b"g", b"h", b"k", b"l", PACKAGE} == set()


def test_every_import_of_real_files_is_among_them() -> None:
    checked = 0
    for path in sorted(Path(ast.__file__).parent.glob("[a-f]*.py")):
        data = path.read_bytes()
        words = import_words(data)
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
                assert {part.encode() for name in names for part in name.split(".")} - {b"*", b""} <= words, (path, node.lineno)
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("path", "text", "plain"),
    [
        ("tests/test_model.py", b"import pytest\nfrom lib import Model\n", True),
        ("lib/model_test.py", b"import unittest\n", True),
        ("test_model.py", b"from lib import Model\n\ndef test_it():\n    Model()\n", True),
        ("tests/common.py", b"import pytest\n", True),
        ("tests/common.py", b"import lib\n", False),
        ("lib/common.py", b"import pytest\n", False),
        ("test_net.py", b"def test_net(): pass\nif __name__ == '__main__':\n    test_net()\n", False),
        ("test.py", b"import pytest\n", False),
        ("tests/test_gather.py", b"import pytest\nspawn(gather, world_size=2)\n", False),
        ("tests/test_ranks.py", b"import pytest\nmonkeypatch.setattr(lib, 'get_rank', lambda: 1)\n", False),
    ],
)
def test_what_is_a_unit_test_of_one_process(path: str, text: bytes, plain: bool) -> None:
    assert is_plain_test(path, text) is plain
