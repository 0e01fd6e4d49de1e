"""Settings that say something of the project: levels, ignores for files, roots, helpers of its own, its torch; and what shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_audit.cli import main

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tools import chief_only, proc_id, sync_all, wrap_up

dist.init_process_group("gloo")
model = wrap_up(torch.nn.Linear(2, 2))
if proc_id() == 0:
    sync_all()
if not hasattr(F, "scaled_dot_product_attention") and dist.get_rank() == 0:
    dist.barrier()


@chief_only
def save():
    dist.all_reduce(torch.ones(1))


save()
dist.destroy_process_group()
"""
HELPERS = (
    "[helpers]\nrank = ['proc_id']\nmain-process = ['chief_only']\nwrap = ['tools.wrap_up', 'wrap_up']\nbarrier = ['sync_all']\n"
)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)


def found(capsys: pytest.CaptureFixture[str], code: str = "DDP201", *paths: str) -> dict[int, str]:
    main(["check", "--format", "json", *(paths or ("train.py",))])
    document = json.loads(capsys.readouterr().out)
    return {f["line"]: f["severity"] for f in document["findings"] if f["code"] == code}


def test_nothing_is_known_of_helpers_that_nobody_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys) == {11: "error"}


def test_helpers_are_what_the_settings_say(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text(HELPERS)
    assert found(capsys) == {9: "error", 11: "error", 19: "error"}


def test_patterns_are_relative_to_the_settings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("exclude = ['old/lib']\n[per-file-ignores]\n'old/*' = ['DDP2']\n")
    for folder in ("old", "old/lib", "new"):
        Path(folder).mkdir()
        Path(folder, "own.py").write_text(SCRIPT)
    assert main([".", "--format", "json"]) == 1
    everywhere = [f["path"] for f in json.loads(capsys.readouterr().out)["findings"]]
    assert everywhere == ["new/own.py", "train.py"]
    monkeypatch.chdir("old")
    assert found(capsys, "DDP201", "own.py", "../new/own.py") == {11: "error"}
    assert main([".", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    monkeypatch.chdir("lib")
    assert main([".", "--format", "json"]) == 0  # who asks for what is excluded gets it
    assert json.loads(capsys.readouterr().out)["files"] == 1
    assert main(["own.py", "--force-exclude", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 0


def test_a_wrap_helper_makes_a_wrapper(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(SCRIPT.replace("save()\n", "model.weight\n"))
    assert found(capsys, "DDP115") == {}
    Path("ddp-audit.toml").write_text(HELPERS)
    assert list(found(capsys, "DDP115").values()) == ["error"]


def test_the_target_torch_decides_what_torch_has(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("target-torch = '2.4'\n")
    assert found(capsys) == {}
    Path("ddp-audit.toml").write_text("target-torch = '1.13'\n")
    assert found(capsys) == {11: "error"}


def test_levels_and_rules_that_are_off(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("[levels]\nDDP2 = 'info'\nrank-guarded-collective = 'warning'\n")
    assert found(capsys) == {11: "warning"}
    Path("ddp-audit.toml").write_text("[levels]\nDDP201 = 'off'\n")
    assert found(capsys) == {}


def test_ignores_for_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("[per-file-ignores]\n'tests/*' = ['DDP201']\n")
    Path("tests").mkdir()
    Path("tests/train.py").write_text(SCRIPT)
    assert found(capsys) == {11: "error"}
    assert found(capsys, "DDP201", "tests") == {}


def test_roots_are_where_imports_are_looked_up(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lib/inner").mkdir(parents=True)
    Path("lib/inner/tools.py").write_text(
        "import torch.distributed as dist\n\n\ndef proc_id():\n    return dist.get_rank()\n\n\ndef sync_all():\n    dist.barrier()\n"
    )
    assert 9 not in found(capsys)
    Path("ddp-audit.toml").write_text("roots = ['lib/inner']\n")
    assert 9 in found(capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[levels]\nDDP201 = 'loud'\n", "'levels' must be a table of rules"),
        ("[levels]\nDDP999 = 'info'\n", "no rule is called 'DDP999'"),
        ("[per-file-ignores]\n'a' = 'DDP201'\n", "'per-file-ignores' must be"),
        ("target-torch = 'new'\n", "'target-torch' must be a version"),
        ("[helpers]\nranks = ['a']\n", "'helpers' must be a table of rank,"),
        ("per_file_ignore = 1\n", "did you mean 'per-file-ignores'?"),
    ],
)
def test_wrong_settings_are_one_line(capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    Path("ddp-audit.toml").write_text(text)
    assert main(["check", "train.py"]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_config_shows_each_setting_and_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text("[tool.ddp-audit]\nstrict = true\n[tool.ddp-audit.levels]\nDDP201 = 'info'\n")
    assert main(["config", "--format", "json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["strict"] == {"value": True, "from": "pyproject.toml"}
    assert settings["levels"] == {"value": {"DDP201": "info"}, "from": "pyproject.toml"}
    assert settings["min-confidence"] == {"value": "likely", "from": "default"}
    assert main(["config"]) == 0
    assert "DDP201 = info  (pyproject.toml)" in capsys.readouterr().out
    assert main(["config", "nowhere"]) == 2


def test_debug_shows_what_was_made_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tools.py").write_text("def proc_id():\n    return 0\n")
    assert main(["debug", "train.py"]) == 0
    said = capsys.readouterr().out
    assert "read: 2 files\n  tools.py\n  train.py\n" in said
    assert "  collective: 2\n" in said and "train.py:11: dist.barrier()" in said
    assert "DDP201 rank-guarded-collective (likely): 1" in said
    assert "given up on:\n  nothing" in said
    Path("broken.py").write_text("def f(:\n")
    assert main(["debug", "broken.py"]) == 2
    assert "error: broken.py:1:" in capsys.readouterr().out
    assert main(["debug", "nowhere.py"]) == 2


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        ("[tool.ddp_audit]", "[tool.ddp_audit]"),
        ("[tool.ddpaudit]", "[tool.ddpaudit]"),
        ("[tool.DDP-Audit]", "[tool.DDP-Audit]"),
        ('[tool."ddp audit"]', "[tool.ddp audit]"),
        ("[ddp-audit]", "[ddp-audit]"),
    ],
)
def test_a_table_with_another_name_is_named(table: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text(f"{table}\nignore = ['DDP201']\n")
    note = f"pyproject.toml: {shown} is not read; the settings are in [tool.ddp-audit]."
    for _ in range(2):  # the second time from the cache
        assert main(["check", "--format", "text", "train.py"]) == 1
        assert note in capsys.readouterr().out.splitlines()
    assert main(["config", "."]) == 0
    assert note in capsys.readouterr().out.splitlines()


def test_other_tools_have_their_tables(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text("[tool.ddp-audit]\nignore = ['DDP201']\n[tool.ddp-audit-extra]\na = 1\n[tool.ruff]\n")
    main(["check", "--format", "text", "train.py"])
    assert "is not read" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ("select = ['DDP999']", "select"),
        ("ignore = ['DDP2', 'DDP999']", "ignore"),
        ("[per-file-ignores]\n'tests/*' = ['DDP201', 'DDP999']", "per-file-ignores"),
        ("[levels]\nDDP999 = 'off'", "levels"),
        ("[levels]\nDDP999 = 'error'", "levels"),
    ],
)
def test_a_rule_that_is_none_is_named_with_the_file(settings: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text(settings)
    assert main(["check", "train.py"]) == 2
    assert f"ddp-audit.toml: {key}: no rule is called 'DDP999'" in capsys.readouterr().err
    assert main(["check", "train.py", "--ignore", "DDP998"]) == 2
    err = capsys.readouterr().err
    assert ("DDP998" in err) != ("DDP999" in err) and ("ddp-audit.toml" in err) == ("DDP999" in err)


def test_a_key_of_very_many_parts_is_one_line_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("[tool.ddp-audit]\n" + ".".join(["a"] * 100_000) + " = 1\n")
    Path("train.py").write_text("import torch\n")
    assert main(["check", "--no-cache", "train.py"]) == 2
    assert capsys.readouterr().err == "ddp-audit: pyproject.toml: cannot be read: a line has more than 2,000 dots\n"
