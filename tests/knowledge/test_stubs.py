"""A user's own descriptions of libraries: what they change, in both engines, and what is wrong with a file that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.cli import main
from ddp_audit.knowledge.reading import KnowledgeError
from ddp_audit.knowledge.stubs import described_in

START = "import torch\nimport torch.distributed as dist\nimport acme\n\ndist.init_process_group('gloo')\n"
END = "dist.destroy_process_group()\n"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def audit(capsys: pytest.CaptureFixture[str], body: str, toml: str = "", *words: str) -> dict[str, Any]:
    Path("train.py").write_text(START + body + END)
    if toml:
        Path("acme.toml").write_text(toml)
        Path("ddp-audit.toml").write_text("stubs = ['acme.toml']\n")
    main(["check", "--format", "json", *words, "train.py"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def codes(document: dict[str, Any]) -> set[tuple[int, str]]:
    return {(f["line"], f["code"]) for f in document["findings"] if f["severity"] != "info"}


# Each way to say that a place is for one rank, or a call a collective: the description, and a body whose line 7 then hangs.
WAYS = {
    "a function": ('["acme"]\nrank = { like = "dist.get_rank()" }\n'.replace("dist", "torch.distributed"), "acme.rank() == 0"),
    "a condition": ('["acme"]\nis_first = { like = "torch.distributed.get_rank() == 0" }\n', "acme.is_first()"),
    "with an argument": (
        '["acme"]\nis_rank = { takes = "n=1", like = "torch.distributed.get_rank() == n" }\n',
        "acme.is_rank(n=0)",
    ),
    "a default": ('["acme"]\nis_rank = { takes = "n=0", like = "torch.distributed.get_rank() == n" }\n', "acme.is_rank()"),
    "a value": ('["acme"]\nRANK = { value = "int(os.environ[\'RANK\'])" }\n', "acme.RANK == 0"),
    "a module below": ('["acme.comm"]\nrank = { like = "torch.distributed.get_rank()" }\n', "acme.comm.rank() == 0"),
    "a method": (
        '["acme"]\nJob = {}\n"Job.first" = { like = "torch.distributed.get_rank() == 0" }\n',
        "acme.Job().first()",
    ),
}


@pytest.mark.parametrize(("toml", "test"), WAYS.values(), ids=WAYS.keys())
def test_a_condition_that_is_described(toml: str, test: str, capsys: pytest.CaptureFixture[str]) -> None:
    body = f"if {test}:\n    dist.barrier()\n"
    assert (7, "DDP201") not in codes(audit(capsys, body)) or "rank() ==" in test  # a name can already say as much
    document = audit(capsys, body, toml, "--explain-run")
    assert (7, "DDP201") in codes(document)
    assert document["run"]["outcome"] == "hangs"


def test_a_collective_that_is_described_meets_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    body = "if dist.get_rank() == 0:\n    acme.sync()\nelse:\n    dist.barrier()\n"
    document = audit(capsys, body, '["acme"]\nsync = { like = "torch.distributed.barrier()" }\n', "--explain-run")
    assert codes(document) == set() and document["run"]["outcome"] == "completes"


def guarded(capsys: pytest.CaptureFixture[str], body: str, toml: str = "") -> dict[int, str]:
    """The line of each collective that not all ranks are known to reach, with the reason."""
    found = audit(capsys, body, toml, "--min-confidence", "possible")["findings"]
    return {f["line"]: f["related"][0]["text"].partition("depends on ")[2] for f in found if f["code"] == "DDP201"}


def test_a_sum_over_the_ranks_leaves_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    body = "x = torch.zeros(1)\nx += float(open('x').read())\ntotal = acme.total(x)\nif total.item() > 1:\n    dist.barrier()\n"
    assert guarded(capsys, body) == {10: "files"}
    assert guarded(capsys, body, '["acme"]\ntotal = { takes = "x", like = "torch.distributed.all_reduce(x)", gives = "x" }\n') == {}


def test_a_variable_that_is_handed_in_is_equal_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    body = "x = torch.zeros(1)\nx += float(open('x').read())\nacme.add_up(x)\nif x.item() > 1:\n    dist.barrier()\n"
    assert guarded(capsys, body) == {10: "files"}
    assert guarded(capsys, body, '["acme"]\nadd_up = { takes = "x", like = "torch.distributed.all_reduce(x)" }\n') == {}


def test_what_comes_back_can_be_said_without_a_like(capsys: pytest.CaptureFixture[str]) -> None:
    body = "x = acme.read(dist.get_rank())\nif x > 1:\n    dist.barrier()\n"
    assert guarded(capsys, body) == {8: "rank"}
    assert guarded(capsys, body, '["acme"]\nread = { takes = "x", gives = "uniform" }\n') == {}
    body = body.replace("dist.get_rank()", "0")
    assert guarded(capsys, body, '["acme"]\nread = { takes = "x", gives = "unknown" }\n') == {}
    assert guarded(capsys, body, '["acme"]\nread = { takes = "x", adds = "clock" }\n') == {8: "clock"}


def test_what_is_described_counts_more_than_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    Path("acme.py").write_text("def sync():\n    pass\n")
    body = "if dist.get_rank() == 0:\n    acme.sync()\n"
    assert codes(audit(capsys, body)) == set()
    assert (7, "DDP201") in codes(audit(capsys, body, '["acme"]\nsync = { like = "torch.distributed.barrier()" }\n'))


def test_descriptions_that_lead_to_each_other_end(capsys: pytest.CaptureFixture[str]) -> None:
    toml = '["acme"]\na = { like = "acme.b()" }\nb = { like = "acme.a()" }\n'
    document = audit(capsys, "acme.a()\n", toml, "--explain-run")
    assert codes(document) == set() and document["run"]["outcome"] == "completes"


def test_descriptions_that_grow_without_end_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    toml = '["acme"]\n' + "".join(f'f{n} = {{ like = "acme.f{n + 1}() + acme.f{n + 1}()" }}\n' for n in range(60)) + "f60 = {}\n"
    assert codes(audit(capsys, "acme.f0()\n", toml)) == set()


def test_a_framework_answers_for_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    body = "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\nacme.fit(model)\n"
    Path("train.py").write_text((START + body).replace("'gloo'", "'nccl'"))

    def found() -> set[str]:
        main(["check", "--format", "json", "train.py"])
        return {finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]}

    assert "DDP604" in found()
    Path("acme.toml").write_text('[framework]\nname = "acme"\npackages = { acme = "" }\ndoes = { tears-down-group = true }\n')
    Path("ddp-audit.toml").write_text("stubs = ['acme.toml']\n")
    assert "DDP604" not in found()


@pytest.mark.parametrize("form", ["text", "sarif", "github", "json"])
def test_each_report_says_how_many_are_in_effect(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(START + END)
    Path("acme.toml").write_text('["acme"]\nsync = {}\nload = {}\n')
    Path("ddp-audit.toml").write_text("stubs = ['acme.toml']\n")
    main(["check", "--format", form, "train.py"])
    assert "2 descriptions of libraries from acme.toml are in effect." in capsys.readouterr().out


def test_a_change_of_a_description_counts_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_AUDIT_CACHE", str(Path("cache").absolute()))
    body = "if acme.first():\n    dist.barrier()\n"
    assert codes(audit(capsys, body, '["acme"]\nfirst = {}\n')) == set()
    assert codes(audit(capsys, body, '["acme"]\nfirst = {}\n')) == set()
    assert (7, "DDP201") in codes(audit(capsys, body, '["acme"]\nfirst = { like = "torch.distributed.get_rank() == 0" }\n'))


WRONG = {
    "acme = 1": "'acme' must be a table: a module, with its names in quotes, or 'framework'",
    "[acme]\nsync = 1": "'acme.sync' must be a table: sync = { .. }",
    "[acme.comm]\nsync = { like = 'f()' }": "the table [\"acme\"] has a table 'comm' in it: a module's whole name stands in quotes",
    "['a']\nf = { likes = 'g()' }": "unknown key 'likes' in 'a.f'; did you mean 'like'?",
    "['a']\nf = { like = 'g(' }": "'like' of 'a.f' is not Python: g(",
    "['a']\nf = { like = 'x = 1' }": "'like' of 'a.f' is not one expression: x = 1",
    "['a']\nf = { like = '[x for x in y]' }": "'like' of 'a.f' has ListComp; names, calls, operators and constants are allowed",
    "['a']\nf = { like = '" + "-" * 100 + "1' }": "'like' of 'a.f' is nested deeper than 40",
    "['a']\nf = { like = '" + "1+" * 600 + "1' }": "'like' of 'a.f' must be a text of at most 1000 letters",
    "['a']\nf = { takes = \"x): pass\\ndef g(\" }": "'takes' of 'a.f' is not a list of parameters: x): pass def g(",
    "['a']\n\"f\\u001b[2J\\n\" = { likes = 1 }": "unknown key 'likes' in 'a.f [2J '",
    "['a']\nf = { takes = 'x=lambda: 1' }": "'takes' of 'a.f' has Lambda; names, calls, operators and constants are allowed",
    "['a']\nf = { gives = 'y' }": "'gives' of 'a.f' must be uniform, unknown, none or one of its parameters",
    "['a']\nf = { adds = 'luck' }": "'adds' of 'a.f' has 'luck'; the reasons are rank, local data, files, clock, random numbers, an exception",
    "[framework]\nname = 'x'\nruns = ['y']": "unknown key 'runs' in 'framework'",
    "['a'": "is not valid TOML",
    "a" + ".a" * 50_000 + " = 1": "cannot be read: a line has more than 200 dots",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=range(len(WRONG)))
def test_a_wrong_file_is_refused_in_one_line(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KnowledgeError) as raised:
        described_in(text, "acme.toml")
    assert str(raised.value).startswith(f"acme.toml: {said}")
    Path("train.py").write_text(START + END)
    Path("acme.toml").write_text(text)
    Path("ddp-audit.toml").write_text("stubs = ['acme.toml']\n")
    assert main(["check", "train.py"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_file_that_is_not_there_or_too_large_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(START + END)
    Path("ddp-audit.toml").write_text("stubs = ['acme.toml']\n")
    assert main(["check", "train.py"]) == 2
    assert "acme.toml: cannot be read" in capsys.readouterr().err
    Path("acme.toml").write_text("#" * 300_000)
    assert main(["check", "train.py"]) == 2
    assert "acme.toml: cannot be read: is larger than 250 KB" in capsys.readouterr().err
    with pytest.raises(KnowledgeError, match="has 2001 descriptions; 2000 are the most"):
        described_in("['a']\n" + "".join(f"f{n} = {{}}\n" for n in range(2001)), "acme.toml")


def test_a_function_for_the_main_process_runs_there_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    body = "@acme.chief_only\ndef f():\n    dist.barrier()\nf()\n"
    document = audit(capsys, body, '["acme"]\nchief_only = { main-process = true }\n', "--explain-run")
    assert document["run"]["outcome"] == "hangs"


def test_a_value_that_is_described_by_itself_is_that_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    document = audit(capsys, "n = acme.N\ndist.barrier()\n", '["acme"]\nN = { value = "acme.N" }\n', "--explain-run")
    assert document["run"]["outcome"] == "completes"
