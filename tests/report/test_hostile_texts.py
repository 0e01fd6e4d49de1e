"""Texts of an audited project, or of a trace, give no orders to a terminal or to GitHub's runner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.report.summary import lines_of, one_line

ORDERS = "\x1b]0;title\x07\x9b31m\u202e\u2066\u2028"
SCRIPT = f"""import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0 and "{ORDERS}" != "::error::x":
    dist.barrier()
for step in range(unknown("{ORDERS}")):
    if other("{ORDERS}"):
        break
"""
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_characters_that_give_orders_are_written_as_escapes() -> None:
    assert one_line(ORDERS) == "\\x1b]0;title\\x07\\x9b31m\\u202e\\u2066\\u2028"
    assert one_line("a\nb\tc") == "a\\nb\tc"
    assert lines_of("a\nb\x1b") == "a\nb\\x1b"
    assert one_line("::error::x") == "./::error::x" and one_line("  ##[group]x") == "./  ##[group]x"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--format", "text"], ["check", "--format", "terminal"], ["check", "--explain-run"], ["debug"], ["debug", "--all"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_line_of_a_script_reaches_a_terminal_raw(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "train\x1b[31m\u202e.py"
    Path(name).write_text(SCRIPT)
    main([*words, name])
    said = capsys.readouterr()
    assert "\\x1b" in said.out
    assert not FORBIDDEN.search(said.out) and not FORBIDDEN.search(said.err)


def test_a_name_of_a_key_in_the_settings_reaches_no_terminal_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("ddp-audit.toml").write_text('"a\\u001b[31m" = 1\n')
    assert main(["train.py"]) == 2
    assert not FORBIDDEN.search(said := capsys.readouterr().err) and "\\x1b" in said


@pytest.mark.parametrize("form", ["text", "github"])
def test_a_name_of_a_file_is_no_command_of_a_runner(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("::stop-commands::x.py", "::add-mask::,line=3::y.py", "##[error]z.py"):
        Path(name).write_text(SCRIPT)
    Path("::warning::broken.py").write_text("import torch.distributed\n(")
    main([".", "--format", form])
    for line in capsys.readouterr().out.splitlines():
        assert not line.lstrip().startswith("##[")
        if line.lstrip().startswith("::"):
            assert form == "github"
            command, properties = re.match(r"::(\w+) ([^:]*)::", line).groups()  # type: ignore[union-attr]
            assert command in ("error", "warning", "notice")
            assert all(re.fullmatch(r"[a-zA-Z]+=[^,:\n\r]*", part) for part in properties.split(",") if properties)
