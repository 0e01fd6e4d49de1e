"""Bad programs of every rule with a fix, mended by it, run on real ranks: what they were to show is gone, and what is right is seen."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

from case import ROOT, Outcome, Program, read_outcomes, read_program
from run import judgement, page_programs, run_all

from ddp_audit.audit import AuditResult, Options, audit
from ddp_audit.fix.catalogue import FIXES
from ddp_audit.fix.rounds import apply_fixes

# A case in another style than the rule's page, where there is one that a fix mends; the page's example for the others.
CHOSEN = {
    "DDP107": "shared_encoder",
    "DDP115": "generates_on_rank_0",
    "DDP206": "gradients_by_name",
    "DDP212": "never_entered",
    "DDP302": "loader_of_a_trainer",
    "DDP308": "parent_seed",
    "DDP401": "unsynced_before_evaluation",
    "DDP507": "device_of_argument",
    "DDP601": "two_nodes",
    "DDP602": "objects_before_device",
    "DDP603": "resume_in_class",
    "DDP604": "left_open",
    "DDP701": "class_saves",
    "DDP804": "clip_before_unscale",
}
# What follows the mended program of DDP604, whose exception is its own: whether the group that it leaves behind is destroyed.
CAUGHT = """\
    try:
        main()
    except FileNotFoundError:
        print("the group is gone" if not dist.is_initialized() else "the group is open", flush=True)
"""


def bad_programs(folder: Path) -> dict[str, Program]:
    pages = {page.code: page for page in page_programs(folder) if page.kind == "page-bad"}
    found = {}
    for code in FIXES:
        if code not in CHOSEN:
            found[code] = pages[code]
            continue
        copy = folder / "case" / code.lower() / CHOSEN[code]
        shutil.copytree(ROOT / code.lower() / CHOSEN[code], copy)
        found[code] = read_program(copy / "bad.py")
    return found


def good_outcomes(code: str, bad: Program) -> tuple[Outcome, ...]:
    """What the case's own fixed program shows; of a page's, that it is clean."""
    if code == "DDP604":
        return read_outcomes("clean; shows the group is gone", code)
    fixed = bad.path.with_name("fixed.py")
    return read_program(fixed).outcomes if code in CHOSEN else read_outcomes("clean", code)


def test_mended_programs_show_what_the_good_ones_do(tmp_path: Path) -> None:
    mended = {}
    bads = bad_programs(tmp_path)
    for code, bad in bads.items():
        options = Options(select=[code], min_confidence="possible", preview=True)
        paths = [str(bad.path)]
        outcome = apply_fixes(partial(audited, paths, options), {}, True)
        assert outcome.changed == paths, code
        outcome.write()
        mended[code] = replace(bad, kind="fixed", outcomes=good_outcomes(code, bad))
    left_open = mended["DDP604"].path
    text = left_open.read_text()
    assert text.endswith("    main()\n")
    left_open.write_text(text.removesuffix("    main()\n") + CAUGHT)
    shown = run_all(list(mended.values()), tmp_path)
    wrong = {code: said for code, program in mended.items() if (said := judgement(program, shown, bads[code]))}
    assert not wrong


def audited(paths: list[str], options: Options, overlay: Mapping[str, bytes]) -> AuditResult:
    return audit(paths, options, overlay=overlay)
