"""What a command imports, and how the program ends: in processes of their own, with the installed rules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
for _ in range(10):
    model(torch.randn(2, 4)).sum().backward()
dist.destroy_process_group()
"""

# Runs the command line with some modules made impossible to import, then prints which of others were imported.
PROBE = """\
import sys
blocked, watched, words = (part.split(",") for part in sys.argv[1:4])
for name in blocked:
    sys.modules[name] = None
from ddp_audit.cli import main
code = main(words)
print("MODULES", *(name for name in watched if sys.modules.get(name) is not None), file=sys.stderr)
sys.exit(code)
"""


def probe(folder: Path, blocked: str, watched: str, *words: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, blocked, watched, ",".join(words)], cwd=folder, capture_output=True, text=True, timeout=60
    )
    last = done.stderr.splitlines()[-1].split()
    assert last[0] == "MODULES", done.stderr
    return done, last[1:]


def test_the_audit_needs_no_torch_and_json_none_of_the_heavy_packages(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done, imported = probe(tmp_path, "torch,numpy", "rich,networkx,libcst", "train.py", "--format", "json")
    assert done.returncode in (0, 1)
    assert json.loads(done.stdout)["errors"] == []
    assert imported == []


def test_a_folder_without_a_training_script_needs_no_rule(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("a = 1\n")
    (tmp_path / "broken.py").write_text("a = (\n")
    done, imported = probe(tmp_path, "torch", "ddp_audit.program,ddp_audit_rules.facts.training", ".", "--format", "json")
    assert [error["path"] for error in json.loads(done.stdout)["errors"]] == ["broken.py"]
    assert imported == []
    done, imported = probe(tmp_path, "torch", "ddp_audit_rules.facts.training", ".", "--ignore", "DDP9999")
    assert "no rule is called 'DDP9999'" in done.stderr
    assert imported == ["ddp_audit_rules.facts.training"]
    (tmp_path / "plain.py").write_text("import torch.distributed  # ddp-audit: ignore[DDP9999]\n")
    done, _ = probe(tmp_path, "torch", "", "plain.py", "--format", "json")
    assert [finding["name"] for finding in json.loads(done.stdout)["findings"]] == ["unknown-suppression"]


# What a run from the cache has no need of: no room in which code is understood, and no rule.
COLD_ROOMS = ("program", "explore", "machine", "compare", "launch", "folding", "tree", "rule", "trace", "fix", "preflight")
TRUSTING = (
    "from ddp_audit.source import freshness\nfreshness._TICK = -(10**18)\n"  # files that were written just now are old enough
)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_run_from_the_cache_imports_nothing_that_understands_code(tmp_path: Path, form: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("backward()", "backward()\n    if dist.get_rank() == 0: dist.barrier()"))
    everything = PROBE.replace("*(name for name in watched if sys.modules.get(name) is not None)", "*sys.modules")

    def run(program: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
        command = [sys.executable, "-c", program, "torch", "", f"train.py,--format,{form}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        return done, set(done.stderr.splitlines()[-1].split())

    cold, _ = run(everything)
    warm, imported = run(everything)
    assert warm.stdout == cold.stdout != ""
    assert warm.returncode == cold.returncode == 1
    assert not [name for name in imported if name.startswith(tuple(f"ddp_audit.{room}." for room in COLD_ROOMS))]
    assert imported.isdisjoint(f"ddp_audit.{room}" for room in COLD_ROOMS)
    assert not [name for name in imported if name.startswith("ddp_audit_rules.")]
    assert imported.isdisjoint(
        ("libcst", "networkx", "rich", "yaml", "numpy", "subprocess", "tempfile", "difflib", "multiprocessing")
    )
    run(TRUSTING + everything)
    again, imported = run(everything)
    assert (again.stdout, again.returncode) == (cold.stdout, 1)
    assert {name for name in imported if name.startswith("ddp_audit")} == {
        *("ddp_audit", "ddp_audit.cli", "ddp_audit.cache", "ddp_audit.cache.reports", "ddp_audit_rules")
    }
    bare = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, timeout=60)
    imported -= set(bare.stdout.split())  # an environment may have its own ideas of what Python starts with
    assert imported.isdisjoint(("argparse", "json", "re", "typing", "dataclasses", "enum", "hashlib", "pathlib", "collections"))


@pytest.mark.parametrize("words", [["rules"], ["explain", "DDP401"], ["--version"], ["--help"], ["check", "--help"]])
def test_other_commands_need_no_torch(tmp_path: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "torch,numpy", "rich", ",".join(words)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("words", [["trace", "--", "torchrun", "train.py"], ["demo"], ["preflight", "--", "torchrun", "train.py"]])
def test_without_torch_traced_runs_say_what_to_install(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done, _ = probe(tmp_path, "torch", "rich", *words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "ddp-audit: needs torch: pip install 'ddp-audit[trace]'"


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ddp_audit", *words], cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_path_alone_is_short_for_check(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert command(tmp_path, "train.py").stdout == command(tmp_path, "check", "train.py").stdout


def test_no_words_show_the_help_and_exit_2(tmp_path: Path) -> None:
    done = command(tmp_path)
    assert done.returncode == 2
    assert "exit codes" in done.stderr


def test_help_names_every_command(tmp_path: Path) -> None:
    text = command(tmp_path, "--help").stdout
    for name in ("check", "trace", "diff", "batch", "explain", "rules", "demo", "preflight"):
        assert f"\n  {name} " in text


def test_a_reader_that_leaves_early_causes_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch.distributed as dist\n" + "if rank == 0:\n    dist.barrier()\n" * 3000)
    shell = f"{sys.executable} -m ddp_audit rules | head -c 1"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_nothing_audited_is_executed(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("open('executed-helper', 'w').close()\n" + SCRIPT)
    (tmp_path / "train.py").write_text("import helper\nopen('executed-train', 'w').close()\n" + SCRIPT)
    (tmp_path / "config.py").write_text("open('executed-config', 'w').close()\nworld = 2\n")
    command(tmp_path, "train.py", "--config-file", "config.py", "--launch", "torchrun --nproc-per-node 2 train.py config.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.py", "helper.py", "train.py"]
