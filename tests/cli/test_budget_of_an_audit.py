"""One script takes no more than its memory and time, whatever it holds; the others are audited, and the exit code is 2."""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import budget
from ddp_audit.audit import audit
from ddp_audit.cli import main
from ddp_audit.explore import proof
from ddp_audit.folding import Effort
from ddp_audit.program import lower
from ddp_audit.source.deep_stack import run_with_deep_stack
from ddp_audit.source.files import MOST_TOKENS

PREAMBLE = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
"""
HAZARD = "if dist.get_rank() == 0:\n    dist.barrier()\n"


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A script that the lowering of the test takes badly, between two that are ordinary."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "heavy.py", "z.py"):
        Path(name).write_text(PREAMBLE + HAZARD)
    return ["a.py", "heavy.py", "z.py"]


def _spin(*_: Any) -> None:
    while True:
        try:
            sum(range(1_000))
        except Exception:  # as an auditor's own handler, which must not hold it up
            continue


def _deeply(depth: int) -> None:
    if depth:
        _deeply(depth - 1)
    _spin()


def _hoard(*_: Any) -> None:
    held = []
    while True:
        held.append(bytearray(1 << 20))


def _raise_memory_error(*_: Any, **__: Any) -> None:
    raise MemoryError


def _raise_recursion_error(*_: Any, **__: Any) -> None:
    raise RecursionError


@pytest.mark.parametrize("heavy", [_spin, lambda: _deeply(2_000)], ids=["spins", "spins in a deep stack"])
def test_a_script_that_takes_too_long_is_given_up(scripts: list[str], heavy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS", 1.0)

    def lowering(project: Any, entry: Any, **options: Any) -> Any:
        return heavy() if entry.path == "heavy.py" else lower(project, entry, **options)

    result = audit(scripts, lower=lowering)
    assert [str(error) for error in result.errors] == ["heavy.py: was not audited: it takes more than 1 seconds of processor time"]
    assert result.exit_code() == 2
    assert {f.span.path for f in result.findings if f.code == "DDP201"} == {"a.py", "z.py"}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is Linux's")
def test_a_script_that_takes_too_much_memory_is_given_up(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MEMORY", 100 * 1024 * 1024)
    before = resource.getrlimit(resource.RLIMIT_AS)

    def lowering(project: Any, entry: Any, **options: Any) -> Any:
        return _hoard() if entry.path == "heavy.py" else lower(project, entry, **options)

    result = audit(scripts, lower=lowering)
    assert [str(error) for error in result.errors] == [f"heavy.py: {budget.TOO_MUCH_MEMORY}"]
    assert {f.span.path for f in result.findings if f.code == "DDP201"} == {"a.py", "z.py"}
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_a_script_was_given_up_for_is_free_again(scripts: list[str]) -> None:
    """Else every audit of a language server would add as much as one may take."""
    held: list[weakref.ref[Any]] = []

    class Circle:
        def __init__(self) -> None:
            self.itself = self

    def lowering(project: Any, entry: Any, **options: Any) -> Any:
        if entry.path == "heavy.py":
            circle = Circle()
            held.append(weakref.ref(circle))
            raise MemoryError
        return lower(project, entry, **options)

    gc.disable()  # chance must not free it
    try:
        audit(scripts, lower=lowering)
        assert [circle() for circle in held] == [None]
    finally:
        gc.enable()


def test_nothing_is_raised_once_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS", 0.0)
    monkeypatch.setattr(budget, "_LOOKS", 0.001)
    for _ in range(20):
        try:
            with budget.bounded_time():
                time.sleep(0.002)
        except budget.GaveUp:
            pass
        time.sleep(0.002)
    assert run_with_deep_stack(lambda: sum(range(1_000_000))) == 499999500000


def test_time_that_is_spent_leaves_no_thread_standing_still() -> None:
    """Under a debugger or a coverage tool: see `_let_arrive`. In a process of its own, since one that stands still stays so."""
    program = (
        "import sys, threading, time\nfrom ddp_audit import budget\nfrom ddp_audit.source.deep_stack import run_with_deep_stack\n"
        "budget.SECONDS, budget._LOOKS = 0.0, 0.001\n"
        "def work():\n    time.sleep(0.01)\n"
        "for _ in range(20):\n"
        "    try:\n        with budget.bounded_time():\n            run_with_deep_stack(work) if _ % 2 else work()\n"
        "    except budget.GaveUp:\n        pass\n"
        "def traced():\n    sys.settrace(lambda *_: None)\n    exec(compile('x = 1', 'x.py', 'exec'), {})\n"
        "thread = threading.Thread(target=traced, daemon=True)\nthread.start()\nthread.join(30)\nprint(thread.is_alive())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_a_file_with_too_many_tokens_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("big.py").write_text(PREAMBLE + "x = [" + "0," * MOST_TOKENS + "]\n")
    Path("text.py").write_text(PREAMBLE + "x = '" + "0," * MOST_TOKENS + "'\n" + HAZARD)
    assert main(["check", "big.py", "text.py"]) == 2
    said = capsys.readouterr().out
    assert f"big.py: is too large to be audited: it has more than {MOST_TOKENS:,} tokens" in said
    assert "text.py:7" in said and "DDP201" in said


ZIPPED = "z = [1, 2]\n" + "z = zip(z, enumerate(z))\n" * 60 + "for x in z:\n    dist.barrier()\n"
COPIED = (
    "import copy\ns = torch.nn.Linear(4, 4)\nfor i in range(60):\n"
    "    s = torch.nn.Sequential(copy.deepcopy(s), copy.deepcopy(s))\nmodel = DDP(s)\n"
)
SHARED = (
    "s = torch.nn.Linear(4, 4)\nfor i in range(60):\n    s = torch.nn.Sequential(s, s)\nmodel = DDP(s)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for step in range(3):\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
)
LAYERS = (
    "inner = torch.nn.TransformerEncoderLayer(8, 2)\nmodel = DDP(torch.nn.TransformerEncoder(inner, 10**9))\n"
    "model = DDP(torch.nn.LSTM(3, 3, 10**9))\n"
)
GROUPS = "g = dist.new_group(range(10**9))\ndist.barrier(g)\na, b = torch.zeros(10**9).chunk(10**9)[:2]\n"
SPLIT = (
    "from torch.utils.data import TensorDataset, random_split\n"
    "a, b = random_split(TensorDataset(torch.zeros(10**12)), [1e-9, 1e-9])\n"
)


@pytest.mark.parametrize(
    "text", [ZIPPED, COPIED, SHARED, LAYERS, GROUPS, SPLIT], ids=["zip", "copy", "shared", "layers", "groups", "split"]
)
def test_a_short_script_that_stands_for_much(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PREAMBLE + text)
    assert main(["check", "--explain-run", "--no-cache", "train.py"]) in (0, 1)
    assert "error in ddp-audit" not in capsys.readouterr().out


DIAMONDS = (
    "class A0: pass\nclass B0: pass\n"
    + "".join(f"class A{i + 1}(A{i}, B{i}): pass\nclass B{i + 1}(A{i}, B{i}): pass\n" for i in range(40))
    + "x = A40()\nx.f()\nx.y = 1\nprint(x.z, isinstance(x, B0))\n"
)
MODULE_DIAMONDS = (
    "class M0(torch.nn.Module): pass\nclass N0(torch.nn.Module): pass\n"
    + "".join(f"class M{i + 1}(M{i}, N{i}): pass\nclass N{i + 1}(M{i}, N{i}): pass\n" for i in range(40))
    + "x = DDP(M40())\nx(torch.ones(2))\n"
)
CASES = "match dist.get_rank():\n" + "".join(f"    case {i}:\n        dist.barrier()\n" for i in range(9, 4_000))
DEEP_NETWORK = (
    "net = DDP(torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3_000)]))\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "for step in range(10**6):\n    net(torch.ones(1, 4)).sum().backward()\n    optimizer.step()\n"
)


@pytest.mark.parametrize(
    "text", [DIAMONDS, MODULE_DIAMONDS, CASES, DEEP_NETWORK], ids=["diamonds", "modules", "match", "deep network"]
)
def test_what_grows_faster_than_its_text_is_audited_all_the_same(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PREAMBLE + text + HAZARD)
    assert main(["check", "--no-cache", "train.py"]) == 1
    said = capsys.readouterr().out
    assert f"train.py:{(PREAMBLE + text + HAZARD).count(chr(10))}:5" in said and "DDP201" in said


@pytest.mark.parametrize("nested", [False, True])
def test_comparisons_of_long_lists_in_a_loop_are_counted(nested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_audit.explore.exact.state._MOST_WORK", 1_000_000)
    value = "[list(range(2_000)) for _ in range(90)]" if nested else "[1] * 150_000"
    text = f"a = {value}\nb = {value}\nsame = 0\nfor i in range(10**6):\n    if a == b:\n        same += 1\n"
    (tmp_path / "train.py").write_text(PREAMBLE + text + "dist.barrier()\n")
    before = Effort.parts
    assert not audit([tmp_path / "train.py"]).errors
    assert 1_000_000 < Effort.parts - before < 50_000_000


def _run_beside(monkeypatch: pytest.MonkeyPatch, explain: Any) -> None:
    """Let the run that is explained be `explain`, and that of the audit as it is."""
    usual = proof.predicted

    def predicted(job: Any, *, both_ways: bool = False) -> Any:
        return explain() if both_ways else usual(job)

    monkeypatch.setattr(proof, "predicted", predicted)


@pytest.mark.parametrize(
    ("explain", "why"),
    [
        (_spin, "with the audit it takes more than 2 seconds of processor time"),
        (_raise_memory_error, "with the audit it needs more than 900 MB of memory"),
        (_raise_recursion_error, "it is nested too deeply"),
    ],
)
def test_a_run_that_is_given_up_leaves_the_findings(
    explain: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(budget, "SECONDS", 2.0)
    _run_beside(monkeypatch, explain)
    Path("train.py").write_text(PREAMBLE + HAZARD)
    assert main(["check", "--explain-run", "--no-cache", "--format", "text", "train.py"]) == 2
    said = capsys.readouterr()
    assert f"error: train.py: its predicted run was given up: {why} (--explain-run)\n" in said.out and not said.err
    assert "train.py:7:5" in said.out and "DDP201" in said.out and said.out.endswith("\n1 error in 1 file.\n")
    assert main(["check", "--explain-run", "--no-cache", "--format", "json", "train.py"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [finding["code"] for finding in document["findings"] if finding["severity"] == "error"] == ["DDP201"]
    assert [error["path"] for error in document["errors"]] == ["train.py"]


def test_an_audit_and_its_explained_run_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS", 1.0)
    began = time.process_time()
    with pytest.raises(budget.GaveUp), budget.together():
        for _ in range(2):
            with budget.bounded_time():
                while time.process_time() - began < 0.8:
                    pass
        with budget.bounded_time():
            while time.process_time() - began < 20:
                pass
    assert time.process_time() - began < 10  # a bound of its own for each would let it go on


def test_an_audit_that_was_given_up_has_no_run(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ddp_audit.program.lower", _raise_memory_error)
    assert main(["check", "--explain-run", "--no-cache", "heavy.py"]) == 2
    assert capsys.readouterr().out.count("error: ") == 1


def test_a_chain_of_thousands_of_calls_has_its_run_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PREAMBLE + 'x = "a"' + '.replace("a", "aa")' * 3000 + f"\n{HAZARD}")
    assert main(["check", "--explain-run", "--no-cache", "train.py"]) == 1
    said = capsys.readouterr()
    assert "DDP201" in said.out and not said.err


@pytest.mark.parametrize(("error", "said"), [(MemoryError(), "not enough memory"), (RecursionError("x"), "nested too deeply")])
def test_what_escapes_every_bound_is_one_clear_line(
    error: Exception, said: str, scripts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def settle(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("ddp_audit.audit._settle", settle)
    assert main(["check", "--no-cache", *scripts]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1 and "Error" not in line


def test_a_script_that_was_given_up_is_no_script_without_hazards(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lowering(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("ddp_audit.program.lower", lowering)
    assert main(["check", "--no-cache", "heavy.py"]) == 2
    assert capsys.readouterr().out.endswith("\nNo file was audited: 1 file could not be audited.\n")


def test_no_room_for_a_thread_is_too_little_memory(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    result = audit(scripts)
    assert [str(error) for error in result.errors] == [f"{name}: {budget.TOO_MUCH_MEMORY}" for name in scripts]
