"""A project's own rules, from a folder that its settings name and from an entry point, load as the installed ones do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ddp_audit.cli import main

RULE = """
from _shared import NAME

from ddp_audit.api import Rule
from ddp_audit.tree.nodes import Init


class LateGroup(Rule):
    code = "ACME001"
    name = NAME
    level = "error"
    summary = "A process group that is made after a wrapper."
    rationale = "Our launcher does not allow it."
    exceptions = "Other scripts."
    trace_evidence = "Nothing."
    source = "Our handbook."
    bad = good = ""
    outcome = "not-run it is an example"
    fix_hint = "make it first"

    def check(self, context):
        for node in context.program.of(Init):
            yield self.finding(node.span, "The group is made here.")
"""
ALLOW = "--allow-project-rules"
SCRIPT = "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.destroy_process_group()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("lint").mkdir()
    Path("lint/_shared.py").write_text("NAME = 'late-group'\n")
    Path("lint/late_group.py").write_text(RULE)
    Path("ddp-audit.toml").write_text("rules = ['lint']\n")
    for name in ("_shared", "ddp_audit_own_rules_lint_late_group"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def found(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    main(["check", "--format", "json", "train.py", *words])
    return [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]]


def test_a_folder_of_rules_is_part_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACME001" in found(capsys, ALLOW)
    assert found(capsys, ALLOW, "--select", "late-group") == ["ACME001"]
    assert "ACME001" not in found(capsys, ALLOW, "--ignore", "ACME001")
    Path("train.py").write_text(SCRIPT.replace("'gloo')", "'gloo')  # ddp-audit: ignore[ACME001] ours"))
    assert "ACME001" not in found(capsys, ALLOW)
    assert main(["explain", "ACME001", ALLOW]) == 0
    assert "Our launcher does not allow it." in capsys.readouterr().out
    assert main(["rules", ALLOW]) == 0
    assert "late-group" in capsys.readouterr().out


def test_a_changed_rule_counts_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACME001" in found(capsys, ALLOW)
    Path("lint/late_group.py").write_text(RULE.replace("ACME001", "ACME002"))
    assert "ACME002" in found(capsys, ALLOW)


def test_an_entry_point_of_another_distribution(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ddp-audit.toml").unlink()
    site = project / "site"
    (site / "acme_lint").mkdir(parents=True)
    (site / "acme_lint" / "__init__.py").write_text("")
    (site / "acme_lint" / "late_group.py").write_text(RULE.replace("from _shared import NAME\n", "NAME = 'late-group'\n"))
    info = site / "acme_lint-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-lint\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ddp_audit.rules]\nacme = acme_lint\n")
    monkeypatch.syspath_prepend(str(site))
    assert "ACME001" in found(capsys, ALLOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere\n", "cannot be loaded: ModuleNotFoundError"),
        (RULE.replace("ACME001", "DDP401"), "two rules have the code DDP401"),
        (RULE.replace("name = NAME", "name = 'data-not-sharded'"), "two rules have the name data-not-sharded"),
        (RULE.replace('rationale = "Our launcher does not allow it."', 'rationale = ""'), "LateGroup has no rationale"),
    ],
)
def test_rules_that_cannot_be_used_are_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lint/late_group.py").write_text(text)
    assert main(["check", "--no-cache", "train.py", ALLOW]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("rules = ['nowhere']\n")
    assert main(["check", "train.py", ALLOW]) == 2
    assert "nowhere: no such folder of rules" in capsys.readouterr().err


# ---- nothing of it is loaded unless somebody outside of the project allows it

DANGER = "import pathlib\npathlib.Path(__file__).with_name('executed').touch()\n"
NOTE = "Rules of the project were not loaded: lint. --allow-project-rules loads them, which executes them."


@pytest.fixture
def executed(project: Path) -> Path:
    """The file that is there once a rule of the project was executed."""
    for name in ("late_group.py", "_shared.py"):
        Path("lint", name).write_text(DANGER + Path("lint", name).read_text())
    return project / "lint" / "executed"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "train.py"], ["check", "."], ["check", "--no-cache", "train.py"], ["check", "--format", "sarif", "train.py"],
        ["check", "--force-exclude", "train.py"], ["check", "--explain-run", "train.py"], ["check", "--diff", "train.py"],
        ["check", "--statistics", "train.py"], ["config"], ["config", "--format", "json"], ["debug", "train.py"], ["rules"],
        ["rules", "--format", "json"], ["explain", "DDP401"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_command_executes_rules_of_a_project(executed: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(words)
    said = capsys.readouterr()
    assert not executed.exists()
    if "json" not in words and "sarif" not in words and "--diff" not in words:
        assert "--allow-project-rules" in said.out + said.err


@pytest.mark.parametrize("words", [["check", "train.py"], ["debug", "train.py"], ["rules"], ["explain", "ACME001"]], ids=" ".join)
def test_they_are_executed_where_that_is_allowed(executed: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*words, "--allow-project-rules"])
    said = capsys.readouterr()
    assert executed.exists() and "ACME001" in said.out and "not loaded" not in said.out + said.err


def test_what_an_allowed_run_found_is_not_shown_by_one_that_is_not(executed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACME001" in found(capsys, "--allow-project-rules")
    executed.unlink()
    assert "ACME001" not in found(capsys)
    main(["check", "train.py"])
    first = capsys.readouterr().out
    main(["check", "train.py"])
    assert capsys.readouterr().out == first
    assert NOTE in " ".join(first.split()) and "ACME001" not in first and not executed.exists()
    assert "ACME001" in found(capsys, "--allow-project-rules")


def test_names_of_rules_that_were_not_loaded_are_no_mistake(executed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("rules = ['lint']\nignore = ['ACME001']\nlevels = {late-group = 'info'}\n")
    Path("train.py").write_text(SCRIPT.replace("'gloo')", "'gloo')  # ddp-audit: ignore[ACME001] ours"))
    assert "DDP902" not in found(capsys)
    assert main(["check", "--select", "ACME001", "train.py"]) == 2
    assert "no rule is called 'ACME001'" in (said := capsys.readouterr().err) and "--allow-project-rules" in said
    assert not executed.exists()


def test_the_hook_and_the_action_never_allow_it() -> None:
    root = Path(__file__).parents[2]
    for name in ("action.yml", ".pre-commit-hooks.yaml"):
        text = (root / name).read_text()
        assert "ddp-audit" in text and "allow" not in text


def test_a_module_of_the_project_is_not_imported_to_read_a_file_of_a_newer_python(
    executed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser that is asked then runs in a process of its own, which must not look into the working directory."""
    for name in ("libcst.py", "sitecustomize.py", "encodings.py", "typing.py"):
        Path(name).write_text(f"import pathlib\npathlib.Path({str(executed)!r}).touch()\n")
    Path("train.py").write_text("import torch.distributed as dist\nthis is no python\n")
    assert main(["check", "train.py"]) == 2
    assert not executed.exists()


def _in_an_editor(project: Path, *, allowed: bool) -> tuple[list[str], str]:
    """The codes that a language server shows for the script, and what it logs of rules."""
    from ddp_audit.server.documents import Document
    from ddp_audit.server.session import Session

    session = Session(allow_rules=allowed)
    document = Document((project / "train.py").as_uri(), str(project / "train.py"), "")
    document.change(SCRIPT, 1)
    outcome = session.audit(document, {})
    return [finding.code for finding in outcome.findings or []], outcome.withheld


def test_opening_a_file_in_an_editor_executes_no_rules(executed: Path, project: Path) -> None:
    codes, logged = _in_an_editor(project, allowed=False)
    assert "ACME001" not in codes and not executed.exists()
    assert "were not loaded" in logged and "allowProjectRules" in logged
    codes, logged = _in_an_editor(project, allowed=True)
    assert "ACME001" in codes and executed.exists() and not logged


@pytest.mark.parametrize(("options", "allowed"), [(None, False), ({}, False), ({"allowProjectRules": "yes"}, False),
                                                  ({"allowProjectRules": True}, True)])  # fmt: skip
def test_the_initialization_option_allows_them(options: object, allowed: bool) -> None:
    pytest.importorskip("pygls")
    from lsprotocol import types

    from ddp_audit.server.protocol import make_server

    server = make_server()
    handler = server.protocol.fm.features[types.INITIALIZE]
    capabilities = types.ClientCapabilities()
    handler(types.InitializeParams(capabilities, initialization_options=options))
    assert server.session.allow_rules is allowed


def test_earlier_names_of_attributes_go_on_working(capsys: pytest.CaptureFixture[str]) -> None:
    earlier = RULE.replace("summary =", "what =").replace("rationale =", "why =").replace("fix_hint =", "remedy =")
    Path("lint/late_group.py").write_text(earlier)
    with pytest.warns(DeprecationWarning, match="LateGroup.what is called summary"):
        assert main(["explain", ALLOW, "ACME001"]) == 0
    assert "Our launcher does not allow it." in capsys.readouterr().out
