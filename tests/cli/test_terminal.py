"""What a terminal gets: lines that fit it, colours where they are wanted, and text in any locale."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unicodedata import east_asian_width

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from flight_dumps import Recorder, write
from generated_traces import generate
from terminal import BARE, at_terminal

ROOT = Path(__file__).parents[2]

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\]8;[^\x1b]*\x1b\\")  # styles and links
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?3[0-7]m")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal") / "example"
    shutil.copytree(ROOT / "docs" / "example", folder)
    generate(folder / "trace", 12, 200, "size", 7)
    (folder / "größe.py").write_text(
        "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()  # Maß\n", "utf-8"
    )
    return folder


COMMANDS = [
    "train.py --statistics",
    "gpt/train.py --explain-run --world-size 16",
    "rules",
    "demo --list",
    "debug train.py",
    "batch gpt/train.py",
    "batch gpt/train.py --config-file gpt/config/large.py --from 8 --to 16",
    "batch --rank-tokens 1800,2048,400,2048",
    "diff trace",
    "batch --help",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_lines_fit_the_terminal(words: str, example: Path) -> None:
    code, output = at_terminal(words.split(), example)
    assert code in (0, 1) and len(output.splitlines()) > 3, output
    assert [line for line in ESCAPES.sub("", output).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("words", ["train.py", "diff trace"])
def test_colours_are_taken_back(words: str, example: Path) -> None:
    assert COLOUR.search(at_terminal(words.split(), example)[1])
    assert not COLOUR.search(at_terminal(words.split(), example, settings={"NO_COLOR": "1"})[1])


@pytest.mark.parametrize("words", ["train.py --format terminal", "diff trace"])
def test_colours_can_be_had_in_a_pipe(words: str, example: Path) -> None:
    found = []
    for more in ({}, {"FORCE_COLOR": "1"}):
        command = [sys.executable, "-m", "ddp_audit", *words.split()]
        run = subprocess.run(command, cwd=example, env={**BARE, **more}, capture_output=True, text=True, check=False)
        found.append(bool(COLOUR.search(run.stdout)))
    assert found == [False, True]


@pytest.mark.parametrize(("encoding", "form"), [("ascii", "terminal"), ("ascii", "json"), ("latin-1", "text"), ("utf-8", "json")])
def test_no_name_ends_a_report(encoding: str, form: str, example: Path) -> None:
    (example / os.fsdecode(b"\xff.py")).write_text("import torch\n")
    command = [sys.executable, "-m", "ddp_audit", ".", "--format", form, "--select", "DDP201,DDP401"]
    environment = {**BARE, "PYTHONIOENCODING": f"{encoding}:strict", "LC_ALL": "C"}
    run = subprocess.run(command, cwd=example, env=environment, capture_output=True, check=False)
    assert run.returncode == 1, run.stderr
    text = run.stdout.decode("utf-8" if encoding == "ascii" else encoding)
    assert "größe.py" in text
    if form == "json":
        assert [found["path"] for found in json.loads(text)["findings"]].count("größe.py") == 1


def test_letters_that_take_two_columns_are_counted_so(example: Path) -> None:
    """The two columns of a diff stand below each other, and no line is torn, with places of East Asian names."""
    from ddp_audit.report.columns import cut, width_of

    made = [Recorder(rank, 2) for rank in range(2)]
    for one in made:
        one.add("all_reduce", [4 + one.rank], line=30, done=False)
        one.entries[-1]["frames"][2].update(name="学習", filename="/実験/train.py")
    write(example / "dumps", made)
    lines = ESCAPES.sub("", at_terminal(["diff", "dumps"], example)[1]).splitlines()
    assert [line for line in lines if sum(1 + (east_asian_width(letter) in "WF") for letter in line) > 80] == []
    (row,) = (line for line in lines if line.count("/実験/train.py:30 in 学習") == 2)
    (head,) = (line for line in lines if line.split() == ["rank", "0", "rank", "1"])
    assert [width_of(cut("実験" * 9, width)) for width in (9, 10)] == [8, 10]
    before = row[: row.rindex("/実験")]
    assert sum(1 + (east_asian_width(letter) in "WF") for letter in before) == head.index("rank 1")


def test_columns_that_do_not_fit_hang_or_begin_a_line() -> None:
    from ddp_audit.report.columns import fit

    words = "one two three four five six seven eight nine ten eleven"
    assert fit(words, 80) == [words]
    assert fit(f"  {words}", 30) == ["  one two three four five six", "    seven eight nine ten", "    eleven"]
    assert fit(f"code  {words}", 50) == ["code  one two three four five six seven eight nine", "      ten eleven"]
    assert fit(f"code  level  {words}", 50)[:2] == ["code  level", "    one two three four five six seven eight nine"]
    assert fit("x" * 30 + " y", 20) == ["x" * 30, "  y"]


def test_what_a_traced_run_tells_fits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddp_audit.cli.traced import tell

    monkeypatch.setenv("COLUMNS", "40")
    terminal, pipe = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    long = "train.py:21:14: DDP301 error data-not-sharded [likely] No sampler of this loader knows the rank"
    tell(pipe, long)
    tell(terminal, long)
    assert pipe.getvalue() == long + "\n"
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 40 and " ".join(line.strip() for line in lines) == long
