"""Suppression comments: where they hold, and what is said about those that do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.findings import Finding, Span
from ddp_audit.source import suppress
from ddp_audit.source.files import SourceFile, parse_file

KNOWN = {"DDP401", "rank0-forward-through-wrapper", "DDP201", "rank-guarded-collective"}


def source(tmp_path: Path, text: str) -> SourceFile:
    path = tmp_path / "script.py"
    path.write_text(text)
    return parse_file(path, "script")


def finding(file: SourceFile, line: int, code: str = "DDP401", name: str = "rank0-forward-through-wrapper") -> Finding:
    return Finding(code, name, "error", "likely", Span(file.path, line, 1, line, 2), "message")


def kept_lines(tmp_path: Path, text: str, lines: range) -> list[int]:
    file = source(tmp_path, text)
    kept, _ = suppress.apply([finding(file, line) for line in lines], suppress.suppressions(file))
    return [item.span.line for item in kept]


@pytest.mark.parametrize("name", ["DDP401", "ddp401", "rank0-forward-through-wrapper", "DDP201, DDP401"])
def test_on_the_line(tmp_path: Path, name: str) -> None:
    assert kept_lines(tmp_path, f"a = 1\nb = 2  # ddp-audit: ignore[{name}] known\nc = 3\n", range(1, 4)) == [1, 3]


def test_alone_on_the_line_above(tmp_path: Path) -> None:
    text = "a = 1\n# ddp-audit: ignore[DDP401]\n# and a remark\nb = 2\nc = 3\n"
    assert kept_lines(tmp_path, text, range(1, 6)) == [1, 2, 3, 5]


def test_a_blank_line_parts_the_comment_from_the_statement(tmp_path: Path) -> None:
    assert kept_lines(tmp_path, "# ddp-audit: ignore[DDP401]\n\nb = 2\n", range(3, 4)) == [3]


def test_last_line_of_a_long_statement_covers_all_its_lines(tmp_path: Path) -> None:
    text = "f(\n    a,\n    b,\n)  # ddp-audit: ignore[DDP401]\nc = 3\n"
    assert kept_lines(tmp_path, text, range(1, 6)) == [5]


def test_first_line_of_a_long_statement_covers_all_its_lines(tmp_path: Path) -> None:
    text = "f(  # ddp-audit: ignore[DDP401]\n    a,\n    b,\n)\nc = 3\n"
    assert kept_lines(tmp_path, text, range(1, 6)) == [5]


def test_inner_line_covers_that_line_alone(tmp_path: Path) -> None:
    text = "f(\n    a,\n    b,  # ddp-audit: ignore[DDP401]\n    c,\n)\n"
    assert kept_lines(tmp_path, text, range(1, 6)) == [2, 4, 5]  # and the first, see below
    text = "f(g,\n  a,  # ddp-audit: ignore[DDP401]\n  b)\n"
    assert kept_lines(tmp_path, text, range(1, 4)) == [1, 3]


def test_where_formatters_put_the_comment_of_a_first_line(tmp_path: Path) -> None:
    """`f(a,  # comment` and its other arguments below become a line each, the comment that of the first argument."""
    text = "f(\n    a,  # ddp-audit: ignore[DDP401]\n    b,\n)\n"
    assert kept_lines(tmp_path, text, range(1, 5)) == [3, 4]


@pytest.mark.parametrize("width", ["60", "88", "130"])
def test_a_formatter_does_not_part_a_comment_from_its_statement(width: str, tmp_path: Path) -> None:
    long = "a_long_name_of_a_function(one_long_argument, another_long_argument_of_the_call"
    mark = "  # ddp-audit: ignore[DDP401]\n"
    text = (
        f"{long}){mark}if x: {long}){mark}with y as z: {long}){mark}v = [{long}), {long})]{mark}"
        f"# ddp-audit: ignore[DDP401]\n{long})\n{long},{mark}    c)\nv = {long}) + {long}).wait(){mark}"
        f"for i in {long}):{mark}    pass\n{long[:25]}({mark}    c, d)\n"
    )
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", width, "-"]
    formatted = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    calls = [number for number, line in enumerate(formatted.splitlines(), 1) if "a_long_name" in line]
    assert len(calls) == 11
    kept = kept_lines(tmp_path, formatted, range(1, max(calls) + 1))
    assert [line for line in calls if line in kept] == [], formatted


def test_of_a_compound_statement_the_header_is_covered(tmp_path: Path) -> None:
    text = "if rank == 0:  # ddp-audit: ignore[DDP401]\n    a = 1\nb = 2\n"
    assert kept_lines(tmp_path, text, range(1, 4)) == [2, 3]


def test_above_a_decorated_function_the_def_line_is_covered_too(tmp_path: Path) -> None:
    text = "# ddp-audit: ignore[DDP401]\n@wraps\ndef f():\n    pass\n"
    assert kept_lines(tmp_path, text, range(2, 5)) == [4]


def test_whole_file(tmp_path: Path) -> None:
    text = "# ddp-audit: ignore-file[DDP401] generated\n\na = 1\nb = 2\n"
    assert kept_lines(tmp_path, text, range(3, 5)) == []


def test_text_in_a_string_does_nothing(tmp_path: Path) -> None:
    text = 'a = "# ddp-audit: ignore[DDP401]"\nb = """\n# ddp-audit: ignore[DDP401]\n"""\n'
    assert kept_lines(tmp_path, text, range(1, 5)) == [1, 2, 3, 4]


def test_noqa_is_left_alone(tmp_path: Path) -> None:
    file = source(tmp_path, "a = 1  # noqa: DDP401\n")
    assert suppress.suppressions(file) == []


def complaints(tmp_path: Path, text: str, lines: range, expected: set[str] = KNOWN) -> list[tuple[str, int, int]]:
    file = source(tmp_path, text)
    comments = suppress.suppressions(file)
    suppress.apply([finding(file, line) for line in lines], comments)
    return [(c.code, c.span.line, c.span.column) for c in suppress.complaints(comments, KNOWN, expected)]


def test_without_a_code_it_is_reported_and_suppresses_nothing(tmp_path: Path) -> None:
    text = "a = 1  # ddp-audit: ignore\n# ddp-audit: ignore-file\nb = 1  # ddp-audit: ignore[]\n"
    assert complaints(tmp_path, text, range(1, 2)) == [("DDP901", 1, 8), ("DDP901", 2, 1), ("DDP901", 3, 8)]
    assert kept_lines(tmp_path, text, range(1, 2)) == [1]


def test_an_unknown_code_is_reported(tmp_path: Path) -> None:
    assert complaints(tmp_path, "a = 1  # ddp-audit: ignore[DDP999, DDP401]\n", range(1, 2)) == [("DDP902", 1, 8)]


def test_an_unused_one_is_reported_where_its_rule_ran(tmp_path: Path) -> None:
    text = "a = 1  # ddp-audit: ignore[DDP401, DDP201]\n"
    assert complaints(tmp_path, text, range(1, 2)) == [("DDP903", 1, 8)]
    assert complaints(tmp_path, text, range(0), expected=set()) == []


def test_a_used_one_is_not_reported(tmp_path: Path) -> None:
    assert complaints(tmp_path, "a = 1  # ddp-audit: ignore[DDP401]\n", range(1, 2)) == []


def test_a_comment_with_thousands_of_names_makes_few_complaints() -> None:
    twice = suppress.python_suppressions("x = 1  # ddp-audit: ignore[DDP201, DDP201, nobody, nobody]\n", "a.py")
    assert [comment.names for comment in twice] == [("DDP201", "nobody")]
    names = ",".join(f"no-rule-{number}" for number in range(5_000))
    found = suppress.python_suppressions(f"x = 1  # ddp-audit: ignore[{names}]\n", "a.py")
    assert len(list(suppress.complaints(found, {"DDP201"}, {"DDP201"}))) == 256
