"""The cache of single entries: after a change only what depends on it is audited again, and the outcome is that of a cold run."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import symtable
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ddp_audit.cache.tool
from ddp_audit import entries
from ddp_audit.audit import Options, audit
from ddp_audit.cache.entries import Memory
from ddp_audit.cache.files import cache_folder
from ddp_audit.cli import main
from ddp_audit.source import dependency_log


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of entries that are really audited, in this process and for the cache."""
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
    code = main(["check", *words, "--format", "json"])
    return code, capsys.readouterr().out


def write(**texts: str) -> None:
    for name, text in texts.items():
        path = Path(f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


SCRIPT = "import torch.distributed\nimport helper\nimport {also}\na = 'GRAVE'\n"

# What changes, and the scripts that depend on it.
CHANGES: dict[str, tuple[Callable[[], object], list[str]]] = {
    "one script": (lambda: write(one="import torch.distributed\nb = 'SLIGHT'\n"), ["one.py"]),
    "a file that one of them imports": (lambda: write(only_two="b = 'GRAVE'\n"), ["two.py"]),
    "a file that two of them import": (lambda: write(helper="b = 'GRAVE'\n"), ["one.py", "two.py"]),
    "an import that is gone": (lambda: Path("only_two.py").unlink(), ["two.py"]),
    "an import that was missing": (lambda: write(**{"sub/missing": "b = 'GRAVE'\n"}), ["sub/three.py"]),
    "a package before a module": (lambda: write(**{"helper/__init__": "b = 'GRAVE'\n"}), ["one.py", "two.py"]),
    "a new script": (lambda: write(script=SCRIPT.format(also="os")), ["script.py"]),
    "a new script in a new folder": (lambda: write(**{"more/deep/new": SCRIPT.format(also="os")}), ["more/deep/new.py"]),
    "a file that matters from now on": (lambda: write(plain="import torch.distributed\nb = 'GRAVE'\n"), ["plain.py"]),
    "a folder that is an environment from now on": (lambda: Path("sub/pyvenv.cfg").write_text(""), []),
    "a script that is gone": (lambda: Path("sub/three.py").unlink(), []),
    "a file that cannot be parsed": (lambda: write(plain="a = (\n"), []),
    "a document that starts one": (lambda: Path("sub/run.sh").write_text("torchrun --nproc-per-node 2 three.py\n"), ["sub/three.py"]),
    "options that choose findings": (lambda: Path("ddp-audit.toml").write_text("min-confidence = 'possible'\n"), []),
    "a config file": (lambda: write(config="size = 'other'\n"), ["one.py", "sub/three.py", "two.py"]),
    "options of the audit": (lambda: Path("ddp-audit.toml").write_text("world-size = 3\n"), ["one.py", "sub/three.py", "two.py"]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("jobs", ["1", "3"])
def test_after_a_change_only_what_depends_on_it_is_audited_again(
    project: Path, capsys: pytest.CaptureFixture[str], audited: list[str], monkeypatch: pytest.MonkeyPatch, change: str, jobs: str
) -> None:
    monkeypatch.setattr(entries, "_WORTH_PROCESSES", 2)
    make, dependent = CHANGES[change]
    write(
        one=SCRIPT.format(also="os"),
        two=SCRIPT.format(also="only_two"),
        helper="b = 'SLIGHT'\nc = 'VAGUE'\n",
        only_two="",
        plain="",
        config="size = 'one'\n",
    )
    write(**{"sub/three": "import torch.distributed\nimport missing\nfor a in 'GRAVE': pass\n"})
    words = (".", "--jobs", jobs, "--config-file", "config.py")
    report(capsys, *words)
    audited.clear()
    make()
    mixed = report(capsys, *words)
    if jobs == "1":
        assert sorted(audited) == dependent
    audited.clear()
    assert report(capsys, *words) == mixed
    assert audited == []
    assert report(capsys, *words, "--no-cache") == mixed


def test_a_script_alone_and_in_its_folder_are_kept_apart_only_where_imports_may_differ(
    project: Path, capsys: pytest.CaptureFixture[str], audited: list[str]
) -> None:
    write(one=SCRIPT.format(also="os"), helper="b = 'SLIGHT'\n")
    write(**{"sub/three": "import torch.distributed\nimport helper\n"})
    report(capsys, ".")
    assert len(audited) == 2
    report(capsys, "one.py")
    assert len(audited) == 2
    report(capsys, "sub/three.py")  # its own folder is where imports are looked up, and not the one above
    assert len(audited) == 3


def test_an_import_that_cannot_be_parsed_is_told_each_time(
    project: Path, capsys: pytest.CaptureFixture[str], audited: list[str]
) -> None:
    write(one=SCRIPT.format(also="os"), helper="b = (\n")
    first = report(capsys, "one.py")
    assert first[0] == 2
    assert "helper.py" in first[1]
    assert report(capsys, "one.py") == first == report(capsys, "one.py", "--no-cache")


def test_files_that_did_not_change_are_not_parsed_again(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddp_audit.cache.tool, "_state_of_tool", lambda folders: "")
    texts = {f"plain{number}": f"a = {number}\n" for number in range(5)}
    write(one=SCRIPT.format(also="os"), two="import torch.distributed\n", helper="b = 1\n", **texts)
    parsed: list[str] = []

    def noted(real: Callable[..., object], source: str, *args: object, **options: object) -> object:
        parsed.append(source)
        return real(source, *args, **options)

    monkeypatch.setattr(ast, "parse", functools.partial(noted, ast.parse))
    monkeypatch.setattr(symtable, "symtable", functools.partial(noted, symtable.symtable))
    report(capsys, ".")
    assert len(parsed) == 8
    parsed.clear()
    write(plain3="a = 'changed'\n")
    report(capsys, ".")
    assert parsed == ["a = 'changed'\n"]


def test_a_change_of_equal_length_and_time_is_seen(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(one="import torch.distributed\na = 'GRAVE'\n")
    at = Path("one.py").stat()
    first = report(capsys, "one.py")
    report(capsys, "one.py")
    write(one="import torch.distributed\na = 'grave'\n")
    os.utime("one.py", ns=(at.st_atime_ns, at.st_mtime_ns))
    after = report(capsys, "one.py")
    assert after[0] == 0 != first[0]


# With the installed rules

REAL = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import pkg.helper
from pkg import other, absent
from config import size

dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(size, 4))
for _ in range(10):
    model(torch.randn(2, size)).sum().backward()
    if dist.get_rank() == 0:
        dist.barrier()
print(other.rate, pkg.helper.rate)
"""


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    for number in range(1, 6):
        write(**{f"train{number}": REAL + f"print({number})\n"})
    write(
        **{
            "pkg/__init__": "",
            "pkg/helper": "from . import other\n",
            "pkg/other": "import torch.distributed\n",
            "config": "size = 4\n",
        }
    )
    (tmp_path / "README.md").write_text("```\ntorchrun --nproc-per-node 2 train1.py\n```\n")
    return tmp_path


def rows_of(path: Path, jobs: int, leave_out: set[str] | None = None) -> dict[str, set[tuple[str, str, str]]]:
    """What each entry rests on, by its name; of some the results are taken from what `path` holds."""
    memory = Memory(path)
    for key in leave_out or set():
        del memory._kept[key]
    with dependency_log.recording():
        result = audit(["."], Options(jobs=jobs), memory=memory)
    assert not result.errors
    memory.save()
    return {Path(key.partition("\0")[0]).name: set(rows) for key, (rows, _) in memory._kept.items()}


def test_what_an_entry_rests_on_does_not_depend_on_the_others_or_on_the_processes(real: Path) -> None:
    path = real / "parts"
    together = rows_of(path, 1)
    assert len(together) == 5
    assert any(row[0] == "files" and row[1].endswith("other.py") for row in together["train5.py"])
    assert rows_of(real / "more", 3) == together
    for key in list(Memory(path)._kept):
        assert rows_of(path, 1, {key}) == together


def test_concurrent_runs_of_one_cache_all_say_the_same(real: Path) -> None:
    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ddp_audit", *words, "--format", "json", "--jobs", "1"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    names = [".", "train1.py", "train2.py", "."]
    cold = {name: start(name, "--no-cache").communicate(timeout=60) for name in dict.fromkeys(names)}
    running = [(name, start(name)) for name in names]
    assert [process.communicate(timeout=60) for _, process in running] == [cold[name] for name, _ in running]
    assert start(".").communicate(timeout=60) == cold["."]
    assert list(cache_folder().glob("*.part")) == []
    (parts,) = cache_folder().glob("parts-*")
    assert len(Memory(parts)._kept) == 5


HANGS = """\
import torch.distributed as dist
from helper import last
dist.init_process_group("gloo")
jobs = [dist.barrier, print]
jobs.pop(dist.get_rank() if last else 0)()
"""


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_the_predicted_run_is_kept_and_made_again_with_what_it_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], audited: list[str], jobs: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"script{number}" for number in range(5)]
    write(helper="last = 1\n", **dict.fromkeys(names, HANGS))
    cold = report(capsys, ".", "--jobs", jobs)
    assert cold[0] == 1 and cold[1].count('"DDP213"') == 10  # the finding, and the run that it rests on
    audited.clear()
    assert report(capsys, ".", "--jobs", jobs) == cold and not audited
    assert report(capsys, ".", "--jobs", jobs, "--no-cache") == cold
    write(helper="last = 0\n")
    code, text = report(capsys, ".", "--jobs", jobs)
    assert code == 0 and "DDP213" not in text and text.count('"completes"') == 5
