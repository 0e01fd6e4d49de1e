"""What a predicted run proves: against what real runs of the cases showed, and what an audit makes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))
from case import Program, programs

from ddp_audit.audit import audit
from ddp_audit.cli import main
from ddp_audit.explore.exact import NOTHING, OPEN
from ddp_audit.explore.proof import CHECKED, Predicted, predicted
from ddp_audit.outcome import Options
from ddp_audit.predicted import job_of
from ddp_audit.report import run_json, run_text
from ddp_audit.report.run_findings import of_runs
from ddp_audit.rule import load_rules

RULES = {rule.code: rule for rule in load_rules()}
PROGRAMS = [program for program in programs() if all(o.word != "not-run" for o in program.outcomes)]
# Programs that hang or are aborted, without a framework: how many of them the predicted run finds. The others do so by local data, by
# files, or by an exception. A count that goes up is to be written here.
FOUND = 13

HEAD = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""
TRAINING = """\
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
"""


def run_of(folder: Path, text: str, **options: object) -> Predicted:
    """The judged run of a script with this text after the usual imports."""
    (folder / "train.py").write_text(HEAD + text)
    job = job_of([folder / "train.py"], Options(**options), bounds=CHECKED)  # type: ignore[arg-type]
    assert job is not None
    return predicted(job)


def found_in(folder: Path, text: str, **options: object) -> list[tuple[str, str, int]]:
    """Code, severity and line, counted after the imports, of the errors and warnings of an audit."""
    (folder / "train.py").write_text(HEAD + text)
    result = audit([folder / "train.py"], Options(**options))  # type: ignore[arg-type]
    assert not result.errors
    return [(f.code, f.severity, f.span.line - HEAD.count("\n")) for f in result.findings if f.severity != "info"]


def judged(program: Program, monkeypatch: pytest.MonkeyPatch) -> Predicted:
    monkeypatch.chdir(program.path.parent)
    job = job_of([program.path.name], Options(launch=program.launch or None), bounds=CHECKED)
    assert job is not None
    return predicted(job)


# ---- against real runs


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_no_prediction_is_false(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {outcome.word for outcome in program.outcomes}
    run = judged(program, monkeypatch)
    if not shown & {"hang", "abort"}:
        assert run.kind not in ("hangs", "aborts") and run.parting is None
    if not shown & {"error"}:
        assert run.kind != "fails"
    if not shown & {"gradients-local", "parameters-differ"}:
        assert not run.steps


def test_as_many_hangs_as_before_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = [p for p in PROGRAMS if not p.needs and {o.word for o in p.outcomes} & {"hang", "abort"}]
    found = [p.name for p in hanging if (run := judged(p, monkeypatch)).parting is not None and not run.parting.rests_on]
    assert len(found) >= FOUND, f"of {len(hanging)}: {found}"


BAD = [program for program in PROGRAMS if {outcome.word for outcome in program.outcomes} & {"hang", "abort", "gradients-local"}]


@pytest.mark.parametrize("program", BAD, ids=[program.name for program in BAD])
def test_the_report_does_not_contradict_its_findings(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(program.path.parent)
    launch = ["--launch", program.launch] if program.launch else []
    code = main(["check", program.path.name, "--explain-run", "--format", "json", "--no-cache", *launch])
    report = json.loads(capsys.readouterr().out)
    errors = [finding["code"] for finding in report["findings"] if finding["severity"] == "error"]
    run = report["run"]
    assert code == bool(errors)
    assert errors or run["outcome"] not in ("hangs", "aborts") or run["rests_on"]
    assert run["outcome"] == report["predicted"]["runs"][0]["outcome"] if report["predicted"] else True
    main(["check", program.path.name, "--explain-run", "--format", "text", "--no-cache", *launch])
    text = " ".join(capsys.readouterr().out.split())
    found = of_runs(audit([program.path.name], Options(launch=program.launch or None)).findings, RULES)
    promised = [finding.code for finding in found if {"hang", "abort"} & set(RULES[finding.code].outcome.split())]
    assert not ("none waits for another" in text and promised), promised


# ---- how ranks end

EXITS = ["sys.exit(0)", "sys.exit()", "raise SystemExit(0)", "raise SystemExit", "exit()", "quit(0)", "os._exit(0)"]


@pytest.mark.parametrize("leave", EXITS)
def test_a_rank_that_leaves_is_waited_for(tmp_path: Path, leave: str) -> None:
    text = f"import sys\n{TRAINING}for i in range(4):\n    step()\n    if [i, rank] == [1, 0]:\n        {leave}\n"
    run = run_of(tmp_path, text)
    assert run.kind == "hangs" and run.parting is not None and not run.parting.rests_on
    assert [event is None for event in run.parting.stops.values()] == [True, False]
    assert any(severity == "error" for _, severity, _ in found_in(tmp_path, text))


@pytest.mark.parametrize("leave", ["raise ValueError('bad')", "sys.exit(1)", "os._exit(3)", "assert rank"])
def test_a_rank_that_fails_is_left_to_the_launcher(tmp_path: Path, leave: str) -> None:
    text = f"import sys\n{TRAINING}for i in range(4):\n    step()\n    if [i, rank] == [1, 0]:\n        {leave}\n"
    run = run_of(tmp_path, text)
    assert run.kind == "fails" and run.parting is None and list(run.run.raised) == [0]
    assert ("DDP213", "error") not in {found[:2] for found in found_in(tmp_path, text)}


def test_os_exit_runs_no_finally(tmp_path: Path) -> None:
    text = TRAINING + "try:\n    if rank == 0:\n        os._exit(0)\nfinally:\n    dist.barrier()\n"
    run = run_of(tmp_path, text)
    assert [len(run.run.collectives(rank)) for rank in (0, 1)] == [3, 4]


def test_an_inferred_exception_proves_nothing(tmp_path: Path) -> None:
    text = (
        TRAINING
        + "table = {'a': 1}\ntry:\n    table['b' if rank == 0 else 'a']\n    step()\nexcept KeyError:\n    pass\ndist.barrier()\n"
    )
    run = run_of(tmp_path, text)
    assert run.run.kind in ("hangs", "aborts") and run.kind == "goes on" and run.parting is None
    assert "KeyError" in run.why
    assert "DDP213" not in {code for code, _, _ in found_in(tmp_path, text)}


# ---- what a proof rests on


def test_what_is_not_followed_proves_nothing(tmp_path: Path) -> None:
    hang = "if [rank] == [0]:\n    dist.barrier()\n"
    for before in ("import fancy\nfancy.sync()\n", "from .part import sync\nsync()\n", "@fancy.on_rank_0\ndef f(): pass\n"):
        run = run_of(tmp_path, ("import fancy\n" if "@" in before else "") + TRAINING + before + "step()\n" + hang)
        assert run.kind == "goes on" and run.parting is None and "not followed" in run.why, before
    run = run_of(
        tmp_path, "import numpy as np\nimport logging\n" + TRAINING + "logging.getLogger().info(np.mean([1]))\nstep()\n" + hang
    )
    assert run.kind == "hangs" and run.parting is not None and not run.parting.rests_on


def test_a_condition_that_changes_nothing_is_no_condition_of_the_proof(tmp_path: Path) -> None:
    text = TRAINING + "if torch.cuda.is_available():\n    print('cuda')\nstep()\nif [rank] == [0]:\n    dist.barrier()\n"
    run = run_of(tmp_path, text)
    assert run.parting is not None and run.parting.rests_on == ()


def test_a_condition_that_decides_makes_a_warning_that_names_it(tmp_path: Path) -> None:
    text = (
        TRAINING
        + "import json\nmode = json.load(open('mode.json'))\nstep()\nif not mode['safe'] and [rank] == [0]:\n    dist.barrier()\n"
    )
    run = run_of(tmp_path, text)
    if run.parting is not None:
        assert any("mode['safe']" in text for text in run.parting.rests_on)
        assert ("DDP213", "error") not in {found[:2] for found in found_in(tmp_path, text)}


def test_a_loop_of_unknown_length_makes_a_warning(tmp_path: Path) -> None:
    text = TRAINING + "import sys\nfor line in sys.stdin:\n    step()\njobs = [dist.barrier, print]\njobs.pop(rank)()\n"
    run = run_of(tmp_path, text)
    assert run.parting is not None and any("unknown length" in reason for reason in run.parting.rests_on)
    assert ("DDP213", "warning", 13) in found_in(tmp_path, text)


# ---- which finding tells


@pytest.mark.parametrize(
    "flag",
    [
        "(m == 3) if rank != 1 else (m == 0)",
        "m == (3 - 3 * rank)",
        "m == 3 if rank == 0 else m == 1",
        "(m + rank) % 4 == 3",
        "not (m if rank else 3 - m)",
    ],
)
def test_a_run_that_completes_does_not_refute_ranks_that_reduce_in_different_passes(tmp_path: Path, flag: str) -> None:
    """Each rank reduces once an update, so the run goes to its end: with gradients that do not belong together."""
    loop = (
        "for _ in range(3):\n    for m in range(4):\n        model.require_backward_grad_sync = {}\n"
        "        (model(torch.randn(8, 4)).mean() / 4).backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    found = found_in(tmp_path, TRAINING + loop.format(flag))
    assert ("DDP120", "error") in {one[:2] for one in found} and "DDP118" not in {one[0] for one in found}
    assert "DDP120" not in {one[0] for one in found_in(tmp_path, TRAINING + loop.format("m == 3 - 0 * rank"))}


UNKNOWN_LOOPS = {
    "bisect": "import bisect\nfor _ in range(bisect.bisect([1, 2, 3, 4, 5, 6, 7], 6)):\n    step()\n",
    "statistics": "import statistics\nfor _ in range(int(statistics.mean([5, 6, 7]))):\n    step()\n",
    "lines of a file": "for line in open('names.txt'):\n    step()\n",
    "a setting of a file": "import json\ndone = 0\nwhile done < json.load(open('c.json'))['steps']:\n    done += 1\n    step()\n",
    "a queue": "from queue import Queue\nwork = Queue()\nwork.put(1)\nwhile not work.empty():\n    work.get()\n    step()\n",
    "matches": "import re\nfor _ in re.finditer('a', 'aabaa'):\n    step()\n",
    "an iterator of one's own library": "import mine\nit = iter(mine.batches())\nfor _ in it:\n    step()\n",
}


@pytest.mark.parametrize("text", UNKNOWN_LOOPS.values(), ids=UNKNOWN_LOOPS)
def test_a_run_whose_loop_was_cut_short_is_never_called_complete(tmp_path: Path, text: str) -> None:
    run = run_of(tmp_path, TRAINING + text)
    assert run.kind == OPEN and run.why
    shown = run_text.render(run, "script.py")
    assert "The run completes" not in shown and "none waits for another" not in shown and "Not followed to its end" in shown
    assert run_json.as_object(run, "script.py")["outcome"] == OPEN


def test_a_text_names_the_first_conditions_of_many(tmp_path: Path) -> None:
    open_ones = "".join(f"if os.path.exists('{n}'):\n    print({n})\n" for n in range(50))
    run = run_of(tmp_path, f"{TRAINING}{open_ones}if rank == 0:\n    dist.barrier()\n")
    assert run.parting is not None and len(run.parting.rests_on) == 50
    assert run.parting.resting.endswith("; and 45 more.") and run.parting.resting.count(";") == 5


def test_the_finding_of_a_rule_that_knows_why_stands_alone(tmp_path: Path) -> None:
    text = TRAINING + "for i in range(3):\n    step()\n    if rank == 0:\n        dist.barrier()\n"
    assert found_in(tmp_path, text) == [("DDP201", "error", 12)]
    assert found_in(tmp_path, text, select=["DDP213"]) == []  # the hazard has its code, whether it is asked for or not
    assert found_in(tmp_path, text, ignore=["DDP201"]) == []


def test_json_names_the_findings_that_rest_on_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HEAD + TRAINING + "step()\n[dist.barrier, print].pop(rank)()\n")
    result = audit(["train.py"], Options())
    assert result.predicted is not None
    (run,) = result.predicted["runs"]
    assert (run["outcome"], run["world_size"], run["rests_on"]) == ("hangs", 2, [])
    assert run["findings"] == [{"code": "DDP213", "path": "train.py", "cell": None, "line": 14}]


# ---- models that differ

UNLIKE = [
    ("torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(2 + rank)])", {0, 1}, "DDP expects same model"),
    ("torch.nn.Linear(4, 4, bias=rank == 0)", {0, 1}, "DDP expects same model"),
    ("torch.nn.Embedding({0: 65, 1: 100}[rank], 8)", {1}, "appears not to match sizes"),
    ("torch.nn.Linear(2, 8) if rank else torch.nn.Linear(8, 2)", {1}, "appears not to match sizes"),
]


@pytest.mark.parametrize(("model", "ranks", "text"), UNLIKE)
def test_models_that_differ_are_found_at_the_wrap(tmp_path: Path, model: str, ranks: set[int], text: str) -> None:
    script = f"dist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP({model})\n"
    run = run_of(tmp_path, script)
    assert set(run.run.raised) == ranks and all(text in said for said in run.run.raised.values())
    assert run.kind == "fails"
    assert found_in(tmp_path, script) == [("DDP213", "error", 3)]


@pytest.mark.parametrize("model", ["bias=rank == 0", "4 + rank"])
def test_models_that_differ_are_not_blamed_on_an_evaluation(tmp_path: Path, model: str) -> None:
    """The constructor fails before rank 0 evaluates, and the wrapper is where both findings look."""
    made = f"torch.nn.Linear(4, 4, {model})" if "=" in model else f"torch.nn.Linear(4, {model})"
    script = (
        f"dist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP(torch.nn.Sequential({made}, torch.nn.BatchNorm1d(4)))\n"
        "for step in range(3):\n    if rank == 0:\n        with torch.no_grad():\n            model(torch.ones(2, 4))\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
    )
    assert ("DDP213", "error", 3) in found_in(tmp_path, script)


@pytest.mark.parametrize(
    "model",
    ["torch.nn.Linear(4, 4 + 0 * rank)", "torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(2 if rank < 9 else 3)])"],
)
def test_models_that_come_out_equal_do_not_differ(tmp_path: Path, model: str) -> None:
    script = f"dist.init_process_group('gloo')\nrank = dist.get_rank()\nmodel = DDP({model})\n"
    run = run_of(tmp_path, script)
    assert not run.run.raised and found_in(tmp_path, script) == []


# ---- the version of torch

ATTENTION = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        if not CHECK:
            self.register_buffer("bias", torch.ones(3))
    def forward(self, x):
        return self.layer(x)
dist.init_process_group("gloo")
model = DDP(Net())
"""


@pytest.mark.parametrize(
    "check",
    [
        "hasattr(torch.nn.functional, 'scaled_dot_product_attention')",
        "int(torch.__version__.split('.')[0]) >= 2",
        "version.parse(torch.__version__) >= version.parse('2.0')",
    ],
)
def test_the_version_of_torch_is_that_of_the_settings(tmp_path: Path, check: str) -> None:
    text = "from packaging import version\n" + ATTENTION.replace("CHECK", check)
    sizes = {}
    for target in (None, "2.1", "1.13"):
        run = run_of(tmp_path, text, target_torch=target).run
        sizes[target] = [event.numel for event in run.collectives(0)][2:]
        assert run.assumed_torch == ("2.13" if target is None else "")
        assert not run.assumptions
    assert sizes[None] == sizes["2.1"] == [20]
    assert sizes["1.13"] == [23]


# ---- the main line

OPTIONAL = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
OPTION
args = parser.parse_args()
if TEST:
    dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
if TEST:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(args.steps):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
"""
SWITCHES = [
    ('parser.add_argument("--distributed", action="store_true")', "args.distributed", "distributed = True"),
    ('parser.add_argument("--gpus", type=int, default=1)', "args.gpus > 1", "gpus = 2"),
    ('parser.add_argument("--local_rank", type=int, default=-1)', "args.local_rank >= 0", "local_rank = the rank"),
    (
        'parser.add_argument("--launcher", choices=["none", "pytorch"], default="none")',
        "args.launcher != 'none'",
        "launcher = pytorch",
    ),
    ('parser.add_argument("--x", type=bool, default=False)', "args.x", "x = True"),
]


@pytest.mark.parametrize(("option", "test", "said"), SWITCHES)
def test_the_arm_that_comes_to_the_training_is_the_main_line(tmp_path: Path, option: str, test: str, said: str) -> None:
    run = run_of(tmp_path, OPTIONAL.replace("OPTION", option).replace("TEST", test))
    assert [flip.text for flip in run.flips] == [f"the option {said}"]
    assert run.kind == "completes" and len(run.run.collectives(1)) > 3


def test_a_switch_that_leads_nowhere_keeps_its_default(tmp_path: Path) -> None:
    text = OPTIONAL.replace("OPTION", 'parser.add_argument("--fast", action="store_true")').replace("TEST", "False")
    run = run_of(tmp_path, text)
    assert run.flips == () and run.kind == NOTHING and run.why == "no process group is made"


def test_an_unknown_condition_before_the_group_is_taken_as_met(tmp_path: Path) -> None:
    text = OPTIONAL.replace("OPTION", "import yaml\nconfig = yaml.safe_load(open('config.yaml'))").replace("TEST", "config['dist']")
    run = run_of(tmp_path, text)
    assert len(run.flips) == 2 and run.kind == "completes" and run.run.collectives(0)[0].op == "all_gather"
    assert all(a.taken == "true" for a in run.run.assumptions if "dist" in a.text)


def test_groups_say_how_many_ranks_there_are(tmp_path: Path) -> None:
    text = "dist.init_process_group('gloo')\ngroup = dist.new_group([1, 2])\nif dist.get_rank():\n    dist.barrier(group)\n"
    run = run_of(tmp_path, text)
    assert run.run.world_size == 3 and run.kind == "completes"
    assert run_of(tmp_path, text, world_size=2).parting is None


def test_a_finding_of_the_main_line_names_its_option(tmp_path: Path) -> None:
    text = OPTIONAL.replace("OPTION", SWITCHES[0][0]).replace("TEST", SWITCHES[0][1])
    text += "if args.distributed:\n    [dist.barrier, print].pop(dist.get_rank())()\n"
    (tmp_path / "train.py").write_text(HEAD + text)
    (found,) = [f for f in audit([tmp_path / "train.py"], Options()).findings if f.code == "DDP213"]
    assert (found.severity, found.confidence) == ("error", "likely")
    assert found.option is not None and found.option.to_json() == {"name": "distributed", "default": False, "value": True}
