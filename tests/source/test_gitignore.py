"""Files that git ignores are left out of a folder, as git itself says; links out of a tree are not followed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.source.gitignore import Ignored, parse

GIT = shutil.which("git")
NAMES = [
    "a",
    "b",
    "ab",
    "build",
    "x.py",
    "y.py",
    "a.py",
    "ab.py",
    "foo bar.py",
    "[z].py",
    "é.py",
    "#c.py",
    "!d.py",
    "b.txt",
    "trail ",
]
PIECES = ["a", "b", "*", "**", "?", "[ab]", "[!a]", "[a-c]", "*.py", "x.py", "build", "ab", "\\a", "foo bar.py", "é.py", "[[:alpha:]]",
          "[]a]", "a*", "*b", "**a", "[a", "\\*", "[z].py", "\\[z].py", "#c.py", "!d.py", "***", "[^b]*", "*.p?", "[[:digit:]x].py",
          "[\\a]", "?.py"]  # fmt: skip
SPECIAL = ["", "#x.py", "\\#c.py", "\\!d.py", "!", "/", "//", "**", "/**", "**/", "a//", "a/**/b", "**/a/**", "a/**", "x.py ",
           "x.py\\ ", "trail\\ ", "trail  ", "*.py\t"]  # fmt: skip


def _pattern(drawn: random.Random) -> str:
    if drawn.random() < 0.08:
        return drawn.choice(SPECIAL)
    pieces = "/".join(drawn.choice(PIECES) for _ in range(drawn.choice([1, 1, 1, 2, 2, 3])))
    return "!" * (drawn.random() < 0.25) + "/" * (drawn.random() < 0.25) + pieces + "/" * (drawn.random() < 0.25)


def _fill(folder: Path, drawn: random.Random, depth: int = 0) -> None:
    for name in drawn.sample(NAMES, drawn.randint(2, 6)):
        if depth < 3 and drawn.random() < 0.45:
            (folder / name).mkdir()
            _fill(folder / name, drawn, depth + 1)
        else:
            (folder / name).touch()
    if depth == 0 or drawn.random() < 0.4:
        lines = "\n".join(_pattern(drawn) for _ in range(drawn.randint(1, 6))) + drawn.choice(["", "\n", "\r\n"])
        (folder / ".gitignore").write_bytes(lines.encode())


def _ignored(folder: str, rules: Ignored) -> set[str]:
    found: set[str] = set()
    for entry in os.scandir(folder):
        if entry.name == ".git":
            continue
        if rules.ignores(entry.path, entry.is_dir()):
            found.add(entry.path)
            found.update(str(path) for path in Path(entry.path).rglob("*"))
        elif entry.is_dir():
            found |= _ignored(entry.path, rules.inside(entry.path))
    return found


@pytest.mark.skipif(GIT is None, reason="needs git")
@pytest.mark.parametrize("seed", range(25))
def test_what_git_ignores_is_what_git_says(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    _fill(tmp_path, drawn)
    if drawn.random() < 0.3:
        (tmp_path / ".git/info/exclude").write_text(_pattern(drawn) + "\n")
    every = [str(path) for path in tmp_path.rglob("*") if ".git" not in path.parts]
    asked = b"\0".join(os.fsencode(os.path.relpath(path, tmp_path)) for path in every)
    said = subprocess.run(["git", "-C", tmp_path, "check-ignore", "-z", "--stdin"], input=asked, capture_output=True, check=False)
    theirs = {str(tmp_path / os.fsdecode(name)) for name in said.stdout.split(b"\0") if name}
    assert _ignored(str(tmp_path), Ignored.of(str(tmp_path))) == theirs


def test_no_pattern_takes_long() -> None:
    """Tried way by way, each of these takes centuries."""
    (pattern,) = parse(b"*a" * 60 + b"*b\n")
    (path,) = parse(b"x/" + b"**/*a*/" * 40 + b"b\n")
    assert not pattern.fits(b"a" * 255)
    assert not path.fits(b"x/" + b"aa/" * 1_000 + b"c")


HAZARD = "import torch.distributed as dist\n\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n    dist.barrier()\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with hazards in four places."""
    root = tmp_path / "tree"
    for name in ("train.py", "third_party/lib.py", "src/own.py", "src/gen/made.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(HAZARD)
    (root / ".git").mkdir()
    monkeypatch.chdir(root)
    return root


def found(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    main([*words, "--format", "json"])
    return sorted({f["path"] for f in json.loads(capsys.readouterr().out)["findings"] if f["code"] == "DDP201"})


def test_ignored_files_of_a_folder_are_left_out(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = ["src/gen/made.py", "src/own.py", "third_party/lib.py", "train.py"]
    assert found(capsys, ".") == every
    (tree / ".gitignore").write_text("third_party/\n")
    assert found(capsys, ".") == ["src/gen/made.py", "src/own.py", "train.py"]
    (tree / "src/.gitignore").write_text("gen/*\n")
    assert found(capsys, ".") == found(capsys, ".") == ["src/own.py", "train.py"]
    assert found(capsys, "src") == ["src/own.py"]
    (tree / "src/.gitignore").write_text("gen/*\n!made.py\n")
    assert found(capsys, ".") == ["src/gen/made.py", "src/own.py", "train.py"]
    assert found(capsys, ".", "--no-respect-gitignore") == every
    assert found(capsys, "third_party/lib.py") == ["third_party/lib.py"]  # who names it means it
    (tree / "ddp-audit.toml").write_text("respect-gitignore = false\n")
    assert found(capsys, ".") == every
    assert found(capsys, ".", "--respect-gitignore") == ["src/gen/made.py", "src/own.py", "train.py"]


def test_a_folder_of_ignored_files_says_so(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / ".gitignore").write_text("*.py\n")
    assert main(["."]) == 2
    assert "no Python files in this directory that git does not ignore" in capsys.readouterr().out


def test_links_out_of_a_tree_are_not_followed(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text(HAZARD)
    (tree / "linked.py").symlink_to(outside / "secret.py")
    (tree / "folder").symlink_to(outside, target_is_directory=True)
    (tree / "inside.py").symlink_to(tree / "train.py")
    assert "linked.py" not in found(capsys, ".") and "folder/secret.py" not in found(capsys, ".")
    assert "inside.py" in found(capsys, ".")
    assert found(capsys, "linked.py") == ["linked.py"]


@pytest.mark.parametrize("text", ["import helper\nhelper.go()\n", "from package import helper\nhelper.go()\n"])
def test_an_import_does_not_follow_a_link_out_of_a_tree(
    text: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    body = "import torch.distributed as dist\n\ndef go():\n    if dist.get_rank() == 0:\n        dist.barrier()\n"
    (outside / "helper.py").write_text(body)
    (outside / "__init__.py").touch()
    (tree / "helper.py").symlink_to(outside / "helper.py")
    (tree / "package").symlink_to(outside, target_is_directory=True)
    (tree / "train.py").write_text("import torch.distributed as dist\n" + text)
    assert found(capsys, "train.py") == []
    for name in ("helper.py", "package"):
        (tree / name).unlink()
    (tree / "package").mkdir()
    for name in ("helper.py", "package/helper.py", "package/__init__.py"):
        (tree / name).write_text(body)
    assert len(found(capsys, "train.py")) == 1


def test_a_link_into_the_repository_is_followed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "shared").mkdir()
    (tree / "shared/helper.py").write_text(
        "import torch.distributed as dist\n\ndef go():\n    if dist.get_rank() == 0:\n        dist.barrier()\n"
    )
    (tree / "src/helper.py").symlink_to(tree / "shared/helper.py")
    (tree / "src/own.py").write_text("import helper\nhelper.go()\n")
    assert found(capsys, "src/own.py") == ["src/helper.py"]
