"""The documentation holds: its console blocks are run and show what they say, its links lead somewhere, its settings are accepted.

A block is run where the line before it says so: `<!-- run in example, exit 1 -->`. Lines of the block without an ellipsis must come in the
output as they are, in their order; `...` alone stands for any lines, and at the end of a line for its rest.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import generate

from ddp_audit.cli import COMMANDS
from ddp_audit.rule import load_rules
from ddp_audit.source.config import Config, find_config

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
BLOCK = re.compile(r"<!-- run in example, exit (\d)(, with torch)? -->\n```console\n(.*?)```", re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def blocks() -> Iterator[tuple[str, int, bool, str]]:
    """Page, exit code, whether torch is needed, and the text of each block that is to be run."""
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
            yield page.name, int(match[1]), bool(match[2]), match[3]


def missing_line(wanted: list[str], output: list[str]) -> str | None:
    """The first wanted line that does not come in the output after the ones before it."""
    at = 0
    for line in wanted:
        if line.strip() == "...":
            continue
        whole = not line.endswith("...")
        start = line if whole else line[:-3].rstrip()
        while at < len(output) and not (output[at].rstrip() == start if whole else output[at].startswith(start)):
            at += 1
        if at == len(output):
            return line
        at += 1
    return None


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy of the example for the blocks of all pages, in their order."""
    folder = tmp_path_factory.mktemp("docs") / "example"
    shutil.copytree(DOCS / "example", folder)
    generate(folder / "job-17", 4, 200, "size", 2)  # the trace that "Reading a diff" reads
    return folder


@pytest.mark.parametrize(("page", "code", "torch", "text"), list(blocks()))
def test_console_block_shows_what_it_says(page: str, code: int, torch: bool, text: str, example: Path) -> None:
    if torch:
        pytest.importorskip("torch")
    command, *wanted = text.splitlines()
    assert command.startswith("$ ddp-audit "), f"{page}: {command}"
    words = shlex.split(command.removeprefix("$ ddp-audit "))
    if "torchrun" in words:
        at = words.index("torchrun")
        words[at : at + 1] = [sys.executable, "-m", "torch.distributed.run"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    run = subprocess.run(
        [sys.executable, "-m", "ddp_audit", *words],
        cwd=example,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == code, run.stdout + run.stderr
    said = missing_line(wanted, (run.stdout + run.stderr).splitlines())
    assert said is None, f"{page}: '{said}' is not in\n{run.stdout}{run.stderr}"


def test_blocks_are_found() -> None:
    assert len(list(blocks())) >= 6


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"\s+", "-", heading) for heading in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    made = {"rules/index.md", *(f"rules/{rule.code}.md" for rule in load_rules())}
    for is_picture, text, target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        assert not is_picture or len(text) > 40, f"{page.name}: {target} has no text for who does not see it"
        path, _, anchor = target.partition("#")
        if target.startswith("https://") or path in made:
            continue
        found = page.parent / path if path else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in headings(found), f"{page.name}: {target}"


def test_pictures_show_what_is_printed_now(tmp_path: Path) -> None:
    """Those of a run are left out: their times and ports differ from run to run."""
    sys.path.insert(0, str(DOCS))
    try:
        from pictures import PICTURES, STATIC
    finally:
        sys.path.remove(str(DOCS))
    for name, make in STATIC.items():
        (tmp_path / name).mkdir()
        assert make(tmp_path / name) == (PICTURES / f"{name}.svg").read_text(encoding="utf-8"), "run make pictures"
    shown = {target for page in PAGES for _, _, target in LINK.findall(page.read_text(encoding="utf-8"))}
    shown = {target.rpartition("/")[2] for target in shown if "pictures/" in target}
    assert shown == {path.name for path in PICTURES.iterdir()}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f" {page.name}\n" not in navigation] == []


def test_settings_of_the_configuration_page_are_accepted(tmp_path: Path) -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    settings = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert settings is not None
    (tmp_path / "pyproject.toml").write_text(settings[1], encoding="utf-8")
    config = find_config(tmp_path)
    assert config.helpers["main-process"] == ["is_boss"]
    for item in fields(Config):
        assert item.name in ("path", "unread", "stub_texts") or f"`{item.name.replace('_', '-')}`" in text


def test_site_is_built(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "site" / "rules" / "DDP401" / "index.html").exists()
    told = (tmp_path / "site" / "commands" / "index.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in told for name in COMMANDS) and "--min-severity" in told
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "TensorDataset" in start and "--8" not in start, "the script of the first page is not in it"
    assert not re.search(r'<(?:script|img|link)[^>]* (?:src|href)="https?://', re.sub(r'<link rel="canonical"[^>]*>', "", start))


@pytest.mark.parametrize("script", ["fixes_table", "frameworks_table", "questions_page"])
def test_made_parts_of_pages_are_up_to_date(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    module = importlib.import_module(script)
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.with_table(text) == text, f"run python docs/{script}.py"


def test_the_picture_of_the_rooms_has_every_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    rooms = importlib.import_module("rooms").ROOMS
    packages = {path.parent.name for path in (ROOT / "auditor" / "ddp_audit").glob("*/__init__.py")}
    assert rooms.keys() == packages | {"rules"}


def test_the_audits_of_the_skill_are_accepted(example: Path) -> None:
    text = (DOCS / "skills" / "ddp-audit" / "SKILL.md").read_text(encoding="utf-8")
    commands = re.findall(r"`ddp-audit (train\.py [^`]*)`", text)
    assert len(commands) > 1
    for command in commands:
        run = subprocess.run(
            [sys.executable, "-m", "ddp_audit", *shlex.split(command)], cwd=example, capture_output=True, text=True, check=False
        )
        assert run.returncode in (0, 1), run.stderr


def test_the_readme_is_short() -> None:
    assert 60 <= len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90
