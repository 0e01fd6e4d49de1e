"""DDP701 in scripts that end at their start where they are told to run as several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

OPTIONS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--{name}', action='store_true')\nargs = p.parse_args()\n"
SAVE = "dist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(4, 1))\ntorch.save(model.state_dict(), 'a.pt')\n"


def script(check: str, name: str = "distributed") -> str:
    return f"{HEAD}{OPTIONS.format(name=name)}{check}\n{SAVE}"


REFUSES = {
    "assert": script("assert not args.distributed, 'one process'"),
    "assert of another name": script("assert not args.use_ddp", "use_ddp"),
    "raise": script("if args.distributed:\n    raise ValueError('one process')"),
    "in a function": script("def start(a):\n    assert not a.distributed\nstart(args)"),
    "options that are not followed": f"{HEAD}from lib import options\nargs = options()\nassert not args.distributed\n{SAVE}",
}
RUNS = {
    "no check": script("pass"),
    "another option": script("assert not args.debug", "debug"),
    "needs several": script("assert args.distributed or True"),
    "a check of one way": script("import sys\nif len(sys.argv) > 3:\n    assert not args.distributed"),
    "a check in a function that nothing calls": script("def start(a):\n    assert not a.distributed"),
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", REFUSES)
def test_a_script_for_one_process_is_left_alone(form: str, tmp_path: Path) -> None:
    assert findings("DDP701", audited(tmp_path, REFUSES[form])) == []


@pytest.mark.parametrize("form", RUNS)
def test_a_script_that_does_not_refuse_is_told_of(form: str, tmp_path: Path) -> None:
    assert len(findings("DDP701", audited(tmp_path, RUNS[form]))) == 1
