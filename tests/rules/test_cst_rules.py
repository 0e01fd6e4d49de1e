"""Rules that visit trees of libcst: the answers that they get of each node, and what loading them costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import cst_rule
from ddp_audit.audit import Options, audit
from ddp_audit.cst_rule import CstRule, leaving, visiting
from ddp_audit.findings import Finding
from ddp_audit.rule_loading import every_rule
from ddp_audit.rule_testing import check_examples, findings_in

EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "example" / "rules"
PAGE: dict[str, Any] = {"level": "warning", "what": "What.", "why": "Why.", "remedy": "mend it"}


class Told(CstRule):
    """Reports each call of `ask` with what the auditor says of its argument."""

    code = "ACME901"
    name = "told"
    level, summary, rationale, fix_hint = PAGE["level"], PAGE["what"], PAGE["why"], PAGE["remedy"]
    requires = ("ask(",)

    @visiting(lambda m: m.Call(func=m.Name("ask")))
    def asked(self, node: Any) -> None:
        argument = node.args[0].value
        ranks = self.reached_by(node)
        shown = "?" if ranks is None else sorted(ranks)
        name, why = self.name_of(argument), " and ".join(sorted(self.differs(argument)))
        self.report(node, f"{name} | {why} | {shown} | {self.values_on(argument, 1)}", confidence="certain")


HEAD = """\
import os, time
import torch
import torch.distributed as dist
from torch.distributed import barrier as wait
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
def ask(x): pass
"""


def told(text: str, **options: Any) -> list[str]:
    """What the rule was told of each argument, in the order of the calls."""
    return [f.message for f in findings_in(Told, HEAD + text, Options(min_confidence="possible", **options))]


def test_the_example_does_what_it_says() -> None:
    (rule,) = [rule for rule in every_rule([str(EXAMPLE)]) if rule.code == "ACME101"]
    assert check_examples(rule) == []


def test_wrong_examples_are_said() -> None:
    valid, silent = HEAD + "ask(1)\n", HEAD + "pass\n"
    misplaced = HEAD + "ask(1)\npass  # finding\n"
    assert check_examples(Told, [valid], [silent, misplaced]) == [
        "VALID[0]: a finding in line 8",
        "INVALID[0]: no finding",
        "INVALID[1]: findings in lines [8] instead of [9]",
    ]


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("dist.barrier", "torch.distributed.barrier"),
        ("wait", "torch.distributed.barrier"),
        ("(wait)", "torch.distributed.barrier"),
        ("DDP", "torch.nn.parallel.DistributedDataParallel"),
        ("print", "print"),
        ("ask", "train.ask"),
        ("dist.get_rank()", "None"),
        ("3", "None"),
    ],
)
def test_what_a_name_is(expression: str, name: str) -> None:
    assert told(f"ask({expression})\n")[0].split(" | ")[0] == name


def test_a_name_in_code_that_nothing_reaches_is_that_of_its_import() -> None:
    assert told("def never():\n    return\n    ask(wait)\n")[0].startswith("torch.distributed.barrier | ")


@pytest.mark.parametrize(
    ("expression", "why", "value"),
    [
        ("dist.get_rank() + 1", "rank", "[2]"),
        ("(dist.get_rank(), 1)", "rank", "[(1, 1)]"),
        ("( dist.get_rank() ) * 2", "rank", "[2]"),
        ("dist.get_world_size()", "", "[2]"),
        ("dist.get_rank() // 2", "", "[0]"),
        ("time.time()", "clock", "[MISSING]"),
        ("os.listdir('.')", "files", "[MISSING]"),
        ("7", "", "[7]"),
    ],
)
def test_why_a_value_differs(expression: str, why: str, value: str) -> None:
    parts = told(f"ask({expression})\n", world_size=2)[0].split(" | ")
    assert (parts[1], parts[3]) == (why, value)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("ask(1)\n", "[0, 1]"),
        ("if dist.get_rank() == 0:\n    ask(1)\n", "[0]"),
        ("if dist.get_rank() == 0:\n    pass\nelse:\n    ask(1)\n", "[1]"),
        ("def main():\n    if dist.get_rank():\n        return\n    ask(1)\nmain()\n", "[0]"),
        ("def step():\n    ask(1)\nif dist.get_rank() == 1:\n    step()\n", "[1]"),
        ("def step():\n    ask(1)\nif dist.get_rank() == 1:\n    step()\nif dist.get_rank() == 0:\n    step()\n", "[0, 1]"),
        ("if torch.load('x')['local'] > dist.get_rank():\n    ask(1)\n", "?"),
        ("def never():\n    return\n    ask(1)\n", "?"),
    ],
)
def test_who_reaches_a_node(text: str, ranks: str) -> None:
    assert told(text)[0].split(" | ")[2] == ranks


def test_the_job_of_the_user_counts() -> None:
    text = "if dist.get_rank() in (2, 3):\n    ask(dist.get_world_size())\n"
    assert told(text, world_size=4) == ["None |  | [2, 3] | [4]"]
    assert told(text, world_size=2) == ["None |  | [] | []"]


def test_every_file_of_the_script_is_visited_and_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import libcst

    monkeypatch.chdir(tmp_path)
    Path("helper.py").write_text("def ask(x): pass\ndef run(rank):\n    ask(rank)\n")
    Path("other.py").write_text("x = 1\n")
    for name in ("one", "two"):
        script = "import torch.distributed as dist, helper, other\ndist.init_process_group()\nhelper.run(dist.get_rank())\n"
        Path(f"{name}.py").write_text(script + f"name = '{name}'\n")
    parsed: list[str] = []
    real = libcst.parse_module
    monkeypatch.setattr(libcst, "parse_module", lambda text: parsed.append(text) or real(text))

    class Again(Told):
        code, name = "ACME902", "told-again"

    cst_rule._parsed.cache_clear()
    result = audit(["one.py", "two.py"], rules=[Told(), Again()])
    assert [(f.code, f.span.path, f.span.line, f.span.column, f.message) for f in result.findings] == [
        (code, "helper.py", 3, 5, "None | rank | [0, 1] | [1]") for code in ("ACME901", "ACME902")
    ]
    assert parsed == [Path("helper.py").read_text()]


def test_visitors_of_libcst_work_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from libcst import matchers as m
    from libcst.metadata import ScopeProvider

    class Plain(Told):
        code, name, requires = "ACME903", "plain", ()

        def begin(self) -> None:
            self.order: list[str] = []

        @m.call_if_inside(m.FunctionDef(name=m.Name("inner")))
        @m.visit(m.Arg())
        def in_inner(self, node: Any) -> None:
            self.report(node, "inside")
            assert self.metadata(ScopeProvider, node.value) is not None

        def visit_ClassDef(self, node: Any) -> bool:
            return False  # nothing inside it is visited

        def visit_Integer(self, node: Any) -> None:
            self.order.append("integer")

        @leaving(lambda m: m.Call(func=m.Name("ask")))
        def left(self, node: Any) -> None:
            self.report(node.func, " ".join(self.order))

    text = HEAD + "class C:\n    ask(1)\ndef inner():\n    ask(2)\nask(3)\n"
    found = {(f.span.line, f.message) for f in findings_in(Plain, text) if not f.message.startswith("None |")}
    assert found == {(11, "inside"), (11, "integer"), (12, "integer integer")}


def test_a_text_that_libcst_cannot_read_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(text: str) -> None:
        raise cst_rule._Unreadable("ParserSyntaxError")

    monkeypatch.setattr(cst_rule, "_parsed", fails)
    path = tmp_path / "train.py"
    path.write_text(HEAD + "ask(1)\n")
    result = audit([path], rules=[Told()])
    assert result.coverage is not None
    assert any("cannot be read by libcst (ParserSyntaxError)" in place.what for place in result.coverage.not_followed)


COUNT = """\
import json, sys
from ddp_audit.cli import main
main(["check", "--no-cache", "--allow-project-rules", "--format", "json", "train.py"])
print(json.dumps([name in sys.modules for name in ("libcst", "networkx")]), file=sys.stderr)
"""


@pytest.mark.parametrize(("line", "is_loaded"), [("x = 1", False), ("print('hello')", True)])
def test_libcst_is_loaded_only_where_a_rule_applies(tmp_path: Path, line: str, is_loaded: bool) -> None:
    (tmp_path / "train.py").write_text(f"import torch.distributed as dist\ndist.init_process_group()\n{line}\n")
    (tmp_path / "ddp-audit.toml").write_text(f"rules = ['{EXAMPLE}']\n")
    run = subprocess.run([sys.executable, "-c", COUNT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(run.stderr.strip().split("\n")[-1]) == [is_loaded, False]


def test_findings_of_such_rules_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + "ask(1)  # ddp-audit: ignore[ACME901]\nask(2)\n")
    result = audit(["train.py"], rules=[Told()])
    (found,) = result.findings
    assert isinstance(found, Finding) and found.span.line == 9 and result.suppressed == 1 and found.source_line == "ask(2)"
