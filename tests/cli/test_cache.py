"""The cache of audits: a warm run does no work and says the same; whatever could change the outcome makes it cold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ddp_audit.cache.tool
import ddp_audit_rules
from ddp_audit import entries
from ddp_audit.cache import files
from ddp_audit.cache.files import cache_folder
from ddp_audit.cli import main
from ddp_audit.source import dependency_log
from ddp_audit.source.config import FORMATS


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path of each entry that the cache has to audit."""
    made: list[str] = []
    real = entries._audit_entry

    def noted(job: entries.Job, entry: entries.SourceFile) -> entries.EntryResult:
        if dependency_log.is_recording():
            made.append(entry.path)
        return real(job, entry)

    monkeypatch.setattr(entries, "_audit_entry", noted)
    monkeypatch.setattr(
        ddp_audit.cache.tool, "_state_of_tool", lambda folders: ""
    )  # the sources may be worked on while the tests run
    return made


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["check", *words])
    return code, capsys.readouterr().out


def write(**texts: str) -> None:
    for name, text in texts.items():
        path = Path(f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def parts() -> list[Path]:
    """The sets of entries that it keeps."""
    return sorted(cache_folder().glob("parts-*"))


SCRIPT = "import torch.distributed\nimport helper\na = 'GRAVE'\n"


@pytest.mark.parametrize("form", FORMATS)
def test_a_warm_run_says_the_same_and_makes_no_audit(
    project: Path, capsys: pytest.CaptureFixture[str], audits: list[str], form: str
) -> None:
    write(train=SCRIPT, helper="b = 'SLIGHT'\nc = 'SLIGHT'  # ddp-audit: ignore[DDP802]\n", other="d = 1\n")
    cold = report(capsys, ".", "--format", form)
    assert report(capsys, ".", "--format", form) == cold
    assert len(audits) == 1
    assert report(capsys, ".", "--format", form, "--no-cache") == cold
    assert "DDP801" in cold[1]


def test_what_does_not_matter_leaves_it_warm(project: Path, capsys: pytest.CaptureFixture[str], audits: list[str]) -> None:
    write(train=SCRIPT, helper="")
    report(capsys, "train.py")
    Path("notes.txt").write_text("")
    Path("__pycache__").mkdir()
    Path("train.py").touch()
    report(capsys, "train.py")
    report(capsys, "train.py", "--jobs", "3", "--statistics", "--strict", "--format", "sarif")
    report(capsys, "train.py", "--min-confidence", "possible", "--exclude", "x")
    assert len(audits) == 1


@pytest.mark.parametrize(
    "more",
    [["--world-size", "4"], ["--set", "a=1"], ["--launch", "torchrun --nproc-per-node 3 train.py"]],
)
def test_other_options_are_another_audit(
    project: Path, capsys: pytest.CaptureFixture[str], audits: list[str], more: list[str]
) -> None:
    write(train=SCRIPT, helper="b = 'SLIGHT'\nd = 'VAGUE'\n")
    report(capsys, "train.py", "--format", "json")
    assert report(capsys, "train.py", "--format", "json", *more) == report(
        capsys, "train.py", "--format", "json", *more, "--no-cache"
    )
    assert len(audits) == 2


def test_a_config_file_that_a_launch_names_counts_when_it_appears(
    project: Path, capsys: pytest.CaptureFixture[str], audits: list[str]
) -> None:
    write(train=SCRIPT)
    words = ("train.py", "--launch", "torchrun --nproc-per-node 2 train.py config/small.py")
    report(capsys, *words)
    report(capsys, *words)
    assert len(audits) == 1
    Path("config").mkdir()
    Path("config/small.py").write_text("size = 1\n")
    report(capsys, *words)
    assert len(audits) == 2
    Path("config/small.py").write_text("size = 2\n")
    report(capsys, *words)
    assert len(audits) == 3


def test_a_baseline_is_held_against_cached_findings(project: Path, capsys: pytest.CaptureFixture[str], audits: list[str]) -> None:
    write(train=SCRIPT)
    report(capsys, "train.py", "--write-baseline", "known.json")
    assert report(capsys, "train.py", "--baseline", "known.json")[0] == 0
    assert report(capsys, "train.py")[0] == 1
    assert len(audits) == 1


def test_an_entry_with_errors_is_not_kept(project: Path, capsys: pytest.CaptureFixture[str], audits: list[str]) -> None:
    write(train=SCRIPT, helper="a = (\n")
    assert report(capsys, ".")[0] == 2
    assert report(capsys, ".")[0] == 2
    assert audits == ["train.py", "train.py"]


def test_no_cache_keeps_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(train=SCRIPT)
    report(capsys, "train.py", "--no-cache")
    assert list(cache_folder().iterdir()) == []


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"rows": []}', '{"rows": [1], "entries": {}, "facts": {}}', '{"rows": [], "entries": {"a": 1}}']
)
def test_a_damaged_entry_is_as_good_as_none(
    project: Path, capsys: pytest.CaptureFixture[str], audits: list[str], damage: str
) -> None:
    write(train=SCRIPT)
    cold = report(capsys, "train.py")
    for entry in cache_folder().iterdir():
        entry.write_text(damage)
    assert report(capsys, "train.py") == cold
    assert len(audits) == 2
    assert report(capsys, "train.py") == cold
    assert len(audits) == 2


def test_a_cache_that_cannot_be_written_costs_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(train=SCRIPT)
    Path("file").write_text("")
    monkeypatch.setenv("DDP_AUDIT_CACHE", str(project / "file" / "below"))
    assert report(capsys, "train.py")[0] == 1
    assert report(capsys, "train.py")[0] == 1


def test_the_oldest_entries_are_dropped(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_PARTS", 2)
    for number in range(4):
        write(**{f"train{number}": SCRIPT})
        report(capsys, f"train{number}.py", "--world-size", str(number + 2))
    assert len(parts()) == 2


def test_the_size_of_the_cache_is_bounded(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, audits: list[str]
) -> None:
    write(train=SCRIPT)
    report(capsys, "train.py")
    monkeypatch.setattr(files, "MOST_BYTES", sum(path.stat().st_size for path in cache_folder().iterdir()) * 3 // 2)
    for path in parts():
        os.utime(path, (0, 0))
    for _ in range(2):
        report(capsys, "train.py", "--world-size", "4")
    assert len(audits) == 2
    report(capsys, "train.py")
    assert len(audits) == 3
    assert sum(path.stat().st_size for path in cache_folder().iterdir()) <= files.MOST_BYTES


def test_a_change_of_a_rule_makes_every_run_cold(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddp_audit_rules, "__path__", [str(project / "rules")])
    Path("rules").mkdir()
    write(train=SCRIPT, **{"rules/one": "level = 'error'\n"})
    report(capsys, "train.py")
    write(**{"rules/one": "level = 'warning'\n"})
    report(capsys, "train.py")
    assert len(parts()) == 2


def test_another_installation_of_the_same_rules_is_warm(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(train=SCRIPT, **{"rules/one": "level = 'error'\n", "again/one": "level = 'error'\n"})
    for folder in ("rules", "again"):
        monkeypatch.setattr(ddp_audit_rules, "__path__", [str(project / folder)])
        report(capsys, "train.py")
    assert len(parts()) == 1


# With the installed rules, in a process of its own

REAL = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import pkg.helper
from pkg import other, absent
import numpy.linalg

dist.init_process_group("nccl")
size = 4
exec(open("configurator.py").read())
model = DDP(torch.nn.Linear(size, 4))
for _ in range(10):
    model(torch.randn(2, size)).sum().backward()
dist.destroy_process_group()
"""

# Writes down every path below the working directory that is opened or asked about, and which of them were noted.
WATCH = """\
import os, sys
root = os.getcwd()
asked, opened = set(), set()
stat = os.stat
def watched(path, *args, **options):
    if isinstance(path, (str, os.PathLike)):
        asked.add(os.path.abspath(path))
    return stat(path, *args, **options)
from ddp_audit.audit import Options, audit
from ddp_audit.source import dependency_log
import ddp_audit.program, ddp_audit.rule, ddp_audit.explore, ddp_audit.launch.notes
sys.addaudithook(lambda event, args: opened.add(os.path.abspath(args[0])) if event == "open" and isinstance(args[0], str) else None)
os.stat = watched
with dependency_log.recording() as noted:
    result = audit(["."], Options(launch=sys.argv[1], jobs=int(sys.argv[2])))
os.stat = stat
assert not result.errors, result.errors
ends = (".py", ".json", ".toml", ".cfg", ".git")
below = lambda paths: sorted(p for p in paths if p.startswith(root + os.sep) and p.endswith(ends))
def covered(path):
    if path in noted.kinds or path in noted.files:
        return True
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder in noted.folders
assert [p for p in below(opened) if p not in noted.files] == [], below(opened)
assert [p for p in below(asked) if not covered(p)] == [], below(asked)
print(len(below(opened)), len(below(asked)))
"""


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "config").mkdir()
    for name in ("train", "train2", "train3", "train4", "train5"):
        (tmp_path / f"{name}.py").write_text(REAL)
    (tmp_path / "configurator.py").write_text("import sys\n")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "helper.py").write_text("from . import other\n")
    (tmp_path / "pkg" / "other.py").write_text("import torch.distributed\n")
    (tmp_path / "config" / "small.py").write_text("size = 8\n")
    return tmp_path


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_everything_that_is_read_or_asked_about_is_noted(real: Path, jobs: str) -> None:
    launch = "torchrun --nproc-per-node 2 train.py config/small.py --more config/absent.json"
    done = subprocess.run([sys.executable, "-c", WATCH, launch, jobs], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    opened, asked = map(int, done.stdout.split())
    assert opened >= (10 if jobs == "1" else 4)
    assert asked > 10


def test_a_warm_run_imports_neither_the_lowering_nor_what_is_heavy(real: Path) -> None:
    probe = (
        "import sys, json\nfrom ddp_audit.cli import main\ncode = main(['.', '--format', 'json'])\n"
        "heavy = ('libcst', 'networkx', 'rich', 'ddp_audit.program', 'ddp_audit.explore', 'ddp_audit.machine', 'ddp_audit.rule')\n"
        "print(*[name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", probe]
    environment = os.environ | {"PYTHONPATH": ""}
    cold, warm = [subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60) for _ in range(2)]
    assert json.loads(cold.stdout)["findings"] != []
    assert warm.stdout == cold.stdout
    assert "ddp_audit.program" in cold.stderr
    assert warm.stderr == "\n"
