"""The measurement beside other tools: its limit, what it reads, and how it tells of tools that did not run. No tool is run."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import bench


def tool(name: str, code: str, **rest: object) -> bench.Tool:
    return bench.Tool(name, lambda path: [sys.executable, "-c", code, str(path)], **rest)  # type: ignore[arg-type]


@pytest.fixture
def subject(tmp_path: Path) -> bench.Subject:
    return bench.sized("a script", bench.script(tmp_path / "subject"))


def test_what_is_generated_parses_and_is_of_its_size(tmp_path: Path) -> None:
    script = bench.sized("a script", bench.script(tmp_path / "one"))
    assert 280 <= script.lines <= 320
    repository = bench.sized("a repository", bench.repository(tmp_path / "many", 5))
    assert repository.files == 5 + 31
    for path in [script.path, *repository.path.rglob("*.py")]:
        ast.parse(path.read_text())


def test_a_tree_is_a_copy_of_about_the_wanted_size(tmp_path: Path) -> None:
    (tmp_path / "package" / "tests").mkdir(parents=True)
    for name in ("a", "b", "c", "tests/d"):
        (tmp_path / "package" / f"{name}.py").write_text("x = 1\n" * 100)
    made = bench.sized("a tree", bench.tree(tmp_path / "tree", [tmp_path / "package"], 150))
    assert (made.files, made.lines) == (2, 200)


def test_copies_differ_and_parse(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("x = (1,\n  2)")
    made = bench.sized("copies", bench.copies(tmp_path / "copies", tmp_path / "package", 8))
    assert (made.files, made.lines) == (3, 9)
    texts = {path.read_text() for path in made.path.rglob("*.py")}
    assert len(texts) == 3
    for text in texts:
        ast.parse(text)


def test_what_does_not_end_or_run_or_install_is_told(subject: bench.Subject, tmp_path: Path) -> None:
    tools = [
        tool("endless", "while True: pass"),
        tool("broken", "raise SystemExit(70)"),
        tool("absent", "", missing="no such distribution"),
        tool("slow", "raise SystemExit(70)"),
        tool("good", "pass"),
    ]
    found = {one.tool: one for one in bench.measured(tools, subject, 1.0, 1, tmp_path, {"slow": 50.0})}
    assert found["endless"].note == "over 1 s"
    assert found["broken"].note == "does not run here (exit code 70)"
    assert found["absent"].note == "not installed: no such distribution"
    assert found["slow"].note.startswith("not run, about 50")
    assert found["good"].note == "" and found["good"].runs == 1 and found["good"].cpu is not None
    page = bench.table([subject], list(found.values()), 1.0)
    for one in found.values():
        assert f"| {one.tool}, cold | {one.note or f'{one.cpu:.2f}'}" in page


def test_a_cache_is_emptied_before_a_cold_run_and_a_file_is_changed_in_the_end(subject: bench.Subject, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code = (
        "import os, sys; from pathlib import Path; kept = Path(os.environ['KEPT']); Path(os.environ['SAID']).open('a').write("
        "f'{kept.is_dir()} {Path(sys.argv[1]).read_text().count(chr(35) + chr(32) + chr(99))} '); kept.mkdir(exist_ok=True)"
    )
    said = tmp_path / "said"
    environment = {"KEPT": str(cache), "SAID": str(said), **({"PATH": os.environ["PATH"]})}
    bench.measured([tool("one", code, cache=cache, environment=environment)], subject, 5, 1, tmp_path, {})
    assert said.read_text().split() == ["False", "0", "True", "0", "True", "1", "False", "1", "True", "1", "True", "2"]
