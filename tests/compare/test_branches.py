"""Which lines of a function exclude each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddp_audit.compare.branches import exclusive, exclusive_in

CASES = [
    ("if rank == 0:\n    a()\nelse:\n    b()\n", True),
    ("if rank == 0:\n    a()\nelif x:\n    pass\nelse:\n    b()\n", True),
    ("if rank != 0:\n    a()\nwork()\nif rank == 0:\n    b()\n", True),
    ("if rank > 0:\n    a()\nif not rank:\n    b()\n", True),
    ("if not is_main:\n    a()\nif is_main and epoch > 3:\n    b()\n", True),
    ("def f():\n    if rank == 0:\n        a()\n        return\n    b()\n", True),
    ("def f():\n    if rank == 0:\n        pass\n    else:\n        b()\n        return\n    a()\n", True),
    ("for x in y:\n    if rank == 0:\n        a()\n        continue\n    with z:\n        b()\n", True),
    ("match rank:\n    case 0:\n        a()\n    case _:\n        b()\n", True),
    ("if r >= 2:\n    a()\nif r < 2:\n    b()\n", True),
    ("try:\n    if r:\n        a()\n    else:\n        b()\nfinally:\n    pass\n", True),
    ("x = a() if rank == 0 else None\nif rank != 0:\n    b()\n", True),
    ("x = (\n    a()\n    if rank == 0\n    else b()\n)\n", True),
    ("x = None if get_rank() else a()\nif get_rank():\n    b()\n", True),
    ("x = c(1 if rank == 0 else 2, a())\nif rank != 0:\n    b()\n", False),
    ("x = c() + (a() if rank == 0 else 2)\nif rank != 0:\n    b()\n", False),
    ("a()\nb()\n", False),
    ("if rank == 0:\n    a()\nb()\n", False),
    ("if rank == 0:\n    a()\n    b()\n", False),
    ("if rank == 0:\n    a()\nif rank == 1:\n    b()\n", False),
    ("if rank == 0:\n    a()\nif rank == 0:\n    b()\n", False),
    ("if not x:\n    a()\nif x:\n    pass\nelse:\n    b()\n", False),
    ("if not not x:\n    a()\nif x:\n    b()\n", False),
    ("if rank == 0:\n    pass\nelse:\n    a()\nif rank:\n    b()\n", False),
    ("if r < 2:\n    a()\nif r >= 2:\n    pass\nelse:\n    b()\n", False),
    ("if not (x or y):\n    a()\nif y:\n    b()\n", True),
    ("if x and y:\n    pass\nelse:\n    a()\nif x:\n    b()\n", False),
    ("for x in y:\n    a()\nelse:\n    b()\n", False),
    ("try:\n    c()\nexcept E:\n    if r:\n        a()\n    else:\n        b()\n", True),
    ("try:\n    a()\nexcept E:\n    b()\n", False),
    ("def f():\n    if r:\n        a()\n        if x:\n            return 1\n        else:\n            raise E\n    b()\n", True),
    ("def f():\n    if r:\n        a()\n        if x:\n            return 1\n    b()\n", False),
    ("def f():\n    if r:\n        a()\n        if x:\n            return 1\n        else:\n            c()\n    b()\n", False),
    ("def f():\n    if r:\n        a()\n        if x:\n            c()\n        else:\n            return 1\n    b()\n", False),
    ("while x:\n    if r:\n        a()\n        break\n    b()\n", True),
    ("if r > 1:\n    a()\nif r <= 1:\n    b()\n", True),
    ("if r == 1:\n    a()\nif r != 1:\n    b()\n", True),
    ("if r == 1:\n    a()\nif r:\n    b()\n", False),
    ("if x is None:\n    a()\nif x is not None:\n    b()\n", True),
    ("if x in y:\n    a()\nif x not in y:\n    b()\n", True),
    ("if 0 < r < 2:\n    a()\nif r > 0:\n    b()\n", False),
    ("if r == False:\n    a()\nif r:\n    b()\n", False),
    ("match rank:\n    case 0:\n        if x:\n            a()\n        else:\n            b()\n", True),
    ("match rank:\n    case 0:\n        a()\nmatch rank:\n    case 1:\n        b()\n", False),
    ("if rank == 0:\n    @g(\n        a()\n    )\n    def f():\n        pass\nelse:\n    b()\n", True),
    ("if rank == 0:\n    if x:\n        return_later = 1\n    a()\nb()\n", False),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_lines_exclude_each_other(text: str, expected: bool) -> None:
    lines = text.splitlines()
    a, b = (next(n for n, line in enumerate(lines, 1) if call in line) for call in ("a()", "b()"))
    tree = ast.parse(text)
    assert exclusive_in(tree, a, b) is expected
    assert exclusive_in(tree, b, a) is expected


def test_a_file_that_cannot_be_read_gives_no_answer(tmp_path: Path) -> None:
    assert exclusive(tmp_path / "absent.py", 1, 2) is None
    broken = tmp_path / "broken.py"
    broken.write_text("if (\n")
    assert exclusive(broken, 1, 2) is None
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00if")
    assert exclusive(binary, 1, 2) is None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    import os

    path = tmp_path / "m.py"
    path.write_text("if r:\n    a()\nelse:\n    b()\n")
    assert exclusive(path, 2, 4) is True
    path.write_text("a()\na()\na()\nb()\n")
    os.utime(path, ns=(1, 1))
    assert exclusive(path, 2, 4) is False
