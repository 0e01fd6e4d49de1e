"""Every fix on programs in other styles than those of the rules' pages: the bad programs of the cases. Some of them run in tests/cases."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit
from ddp_audit.fix.catalogue import CATALOGUE, FIXES
from ddp_audit.fix.rounds import FixResult, apply_fixes

CASES = Path(__file__).parent.parent / "cases"
BAD = sorted(path for code in FIXES for path in CASES.glob(f"{code.lower()}/*/bad.py"))

# What no fix is offered for, or what a codemod declines, and the reason.
LEFT = {
    "ddp112/switch_in_helper": "the flag is set in a helper",
    "ddp113/backward_in_helper": "the block stands in a helper",
    "ddp201/early_return": "ranks leave the function before the collective",
    "ddp201/guard_in_the_callee": "the call of the helper would have to move",
    "ddp201/kept_results": "the call of the function would have to move",
    "ddp201/no_positives": "the condition is on data",
    "ddp201/saver_of_rank_0": "the call of the helper would have to move",
    "ddp201/table_of_calls": "the function comes out of a table",
    "ddp202/consolidated_on_rank_0": "the call of the helper would have to move",
    "ddp202/frameworks": "the collective is part of another statement",
    "ddp202/full_tensor_on_rank_0": "the collective is part of another statement",
    "ddp202/settings_with_a_clock": "the condition is on a clock",
    "ddp202/whole_state_on_rank_0": "the collective is part of another statement",
    "ddp208/reads_too_early": "the operation is started in another method",
    "ddp301/index_drawn_again": "the data set has no plain name",
    "ddp301/loader_from_config": "whether it shuffles follows from the sampler",
    "ddp301/sampler_without_ranks": "there is a sampler already",
    "ddp303/per_node": "the numbers come from a dict of another module",
    "ddp306/set_of_names": "a set may hold what cannot be sorted",
    "ddp306/shuffled_indices": "where a seed belongs is not known",
    "ddp308/noise_helper": "the seed stands in another file than the loop that trains",
    "ddp804/clip_each_micro_batch": "the clip would have to move to the step",
}


def name_of(path: Path) -> str:
    return "/".join(path.parts[-3:-1])


def mended_case(path: Path, folder: Path) -> tuple[Path, FixResult]:
    """A copy of a case's folder, and what mending its bad program for its own rule came to."""
    copy = folder / path.parent.parent.name / path.parent.name
    shutil.copytree(path.parent, copy)
    options = Options(select=[path.parent.parent.name.upper()], min_confidence="possible")
    return copy / "bad.py", apply_fixes(lambda overlay: audit([str(copy / "bad.py")], options, overlay=overlay), {}, True)


@pytest.mark.parametrize("path", BAD, ids=map(name_of, BAD))
def test_a_case_is_mended_once_and_for_all(path: Path, tmp_path: Path) -> None:
    copy, outcome = mended_case(path, tmp_path)
    if name_of(path) in LEFT:
        assert (outcome.changed, outcome.fixed) == ([], [])
        return
    assert outcome.fixed
    assert {finding.fix.safety for finding in outcome.fixed if finding.fix} <= set(CATALOGUE[outcome.fixed[0].code].safety)
    assert (outcome.result.findings, outcome.result.errors) == ([], [])
    outcome.write()
    before, after = path.read_text(), copy.read_text()
    ast.parse(after)
    comments = [line.strip() for line in before.splitlines() if line.strip().startswith("#")]
    assert [line.strip() for line in after.splitlines() if line.strip().startswith("#")] == comments
    _, again = mended_case(copy, tmp_path / "again")
    assert (again.changed, again.fixed) == ([], [])


def test_every_left_case_is_one() -> None:
    assert set(LEFT) <= set(map(name_of, BAD))
