"""Codemods on programs: what they change, what they leave alone, and that the finding is gone afterwards."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import libcst as cst
import pytest
from mending import HEAD, mended, refusals, text_after

from ddp_audit.audit import Options, audit
from ddp_audit.fix.catalogue import CATALOGUE, FIXES
from ddp_audit.fix.rounds import apply_fixes
from ddp_audit.report import sarif
from ddp_audit.rule import load_rules
from ddp_audit.server.documents import Document
from ddp_audit.server.session import Session, changes_of

RULES = {rule.code: rule for rule in load_rules()}
PAGES = sorted(FIXES.keys() - {"DDP804"})  # the page of that one shows another of its faults, which is not mended


@pytest.mark.parametrize("code", PAGES)
def test_the_bad_program_of_each_rule_is_mended_once(code: str) -> None:
    outcome = mended(RULES[code].bad, code)
    assert [finding.code for finding in outcome.fixed] == [code]
    assert (outcome.result.findings, outcome.result.errors) == ([], [])
    after = text_after(outcome)
    ast.parse(after)
    again = mended(after, code)
    assert (again.changed, again.fixed) == ([], [])


@pytest.mark.parametrize("code", PAGES)
def test_line_ends_and_indentation_are_those_of_the_file(code: str) -> None:
    bad = RULES[code].bad
    plain = text_after(mended(bad, code))
    assert text_after(mended(bad.replace("\n", "\r\n"), code)) == plain.replace("\n", "\r\n")
    two = text_after(mended(narrow(bad), code))
    assert two == narrow(plain)


@pytest.mark.parametrize("code", PAGES)
def test_sarif_holds_the_change(code: str) -> None:
    after = text_after(mended(RULES[code].bad, code))
    (run,) = json.loads(sarif.render(audit(["train.py"], Options(select=[code]))))["runs"]
    (fix,) = run["results"][0]["fixes"]
    (replaced,) = fix["artifactChanges"][0]["replacements"]
    lines = RULES[code].bad.splitlines(keepends=True)
    lines[replaced["deletedRegion"]["startLine"] - 1 : replaced["deletedRegion"]["endLine"] - 1] = [
        replaced["insertedContent"]["text"]
    ]
    assert "".join(lines) == after


@pytest.mark.parametrize("code", PAGES)
def test_an_editor_offers_the_change(code: str) -> None:
    bad = RULES[code].bad
    after = text_after(mended(bad, code))
    path = str(Path("train.py").absolute())
    Path("pyproject.toml").write_text(f'[tool.ddp-audit]\nselect = ["{code}"]\n')
    outcome = Session().audit(Document(Path(path).as_uri(), path, bad), {})
    assert (outcome.trouble, outcome.internal) == ("", [])
    finding = (outcome.findings or [])[0]
    change = changes_of(bad, [finding])[0][0]
    assert (change.title.startswith(f"{code}: "), change.safe) == (True, finding.fix is not None and finding.fix.safety == "safe")
    assert " or " not in change.title and len(change.title) < 80  # one edit
    lines = bad.splitlines(keepends=True)
    lines[change.start : change.end] = [change.text]
    assert "".join(lines) == after


def narrow(text: str) -> str:
    """A text that is indented by two spaces a level."""
    return "".join(" " * ((len(line) - len(line.lstrip(" "))) // 2) + line.lstrip(" ") for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("code", ["DDP112", "DDP202", "DDP206", "DDP212", "DDP301", "DDP302", "DDP401", "DDP603", "DDP604"])
def test_the_mended_program_is_nearly_the_good_one(code: str) -> None:
    bad, good = RULES[code].bad.splitlines(), RULES[code].good.splitlines()
    after = text_after(mended(RULES[code].bad, code)).splitlines()
    assert len(after) == len(good)
    # The good program differs in its docstring, and where the flag is moved it stands one line higher.
    assert sorted(after[1:]) == sorted(good[1:])
    assert after != bad


@pytest.mark.parametrize("code", PAGES)
def test_the_rule_says_beforehand_that_its_program_can_be_mended(code: str) -> None:
    Path("train.py").write_text(RULES[code].bad)
    (finding,) = audit(["train.py"], Options(select=[code])).findings
    assert finding.fix is not None
    assert finding.fix.safety == ("unsafe" if code in ("DDP306", "DDP701") else CATALOGUE[code].safety[0])


# DDP112


FLAG = "model.require_backward_grad_sync"


def accumulation(*lines: str) -> str:
    return HEAD + "for step in range(8):\n" + "".join(f"    {line}\n" for line in lines)


def test_the_flag_moves_above_a_forward_inside_a_with_and_takes_its_comment_along() -> None:
    before = accumulation(
        "x = torch.randn(8, 4)  # inputs",
        "",
        "# the forward",
        "with torch.enable_grad():",
        "    loss = model(x).mean( ) / 2",
        "",
        "# reduce every second time",
        f"{FLAG} = (step + 1)%2 == 0  # odd steps",
        "loss.backward()",
        "if (step + 1) % 2 == 0:",
        "    optimizer.step()",
    )
    after = accumulation(
        "x = torch.randn(8, 4)  # inputs",
        "# reduce every second time",
        f"{FLAG} = (step + 1)%2 == 0  # odd steps",
        "",
        "# the forward",
        "with torch.enable_grad():",
        "    loss = model(x).mean( ) / 2",
        "loss.backward()",
        "if (step + 1) % 2 == 0:",
        "    optimizer.step()",
    )
    assert text_after(mended(before, "DDP112")) == after


def test_an_if_that_only_sets_the_flag_moves_as_a_whole() -> None:
    choice = ["if (step + 1) % 2 == 0:", f"    {FLAG} = True", "else:", f"    {FLAG} = False"]
    rest = ["loss.backward()", "if (step + 1) % 2 == 0:", "    optimizer.step()"]
    forward = "loss = model(torch.randn(8, 4)).mean()"
    assert text_after(mended(accumulation(forward, *choice, *rest), "DDP112")) == accumulation(*choice, forward, *rest)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["loss = model(torch.randn(8, 4)).mean()", "last = (step + 1) % 2 == 0", f"{FLAG} = last"], "depends on last"),
        (["loss = model(torch.randn(8, 4)).mean()", f"{FLAG} = bool(loss > 0)"], "depends on loss"),
        (["loss = model(torch.randn(8, 4)).mean()", f"{FLAG} = step % 2 == 1; loss = loss / 2"], "statement of its own"),
        (
            ["loss = model(torch.randn(8, 4)).mean()", "if step > 2:", "    print(step)", f"    {FLAG} = step % 2 == 1"],
            "statement of its own",
        ),
    ],
)
def test_a_flag_that_cannot_be_known_before_the_forward_stays(lines: list[str], reason: str) -> None:
    outcome = mended(accumulation(*lines, "loss.backward()", "optimizer.step()"), "DDP112")
    assert outcome.changed == []
    assert [reason in text for text in refusals(outcome)] == [True]
    assert [finding.code for finding in outcome.result.findings] == ["DDP112"]


# DDP113


def test_the_block_takes_in_what_stands_between_and_keeps_the_format() -> None:
    before = accumulation(
        "x = torch.randn(8, 4)",
        "",
        "# forward",
        "loss = model(x).mean()",
        "loss = loss/2  # of two",
        "# no communication",
        "with model.no_sync(): loss.backward()  # quick",
    )
    after = accumulation(
        "x = torch.randn(8, 4)",
        "",
        "# no communication",
        "with model.no_sync():",
        "    # forward",
        "    loss = model(x).mean()",
        "    loss = loss/2  # of two",
        "    loss.backward()  # quick",
    )
    assert text_after(mended(before, "DDP113")) == after


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ["loss = model(torch.randn(8, 4)).mean()", "if step % 2:", "    with model.no_sync():", "        loss.backward()"],
            "do not stand in one block",
        ),
        (
            ["loss = model(torch.randn(8, 4)).mean()", "with model.no_sync(), torch.enable_grad():", "    loss.backward()"],
            "other contexts",
        ),
    ],
)
def test_a_block_that_cannot_be_widened_stays(lines: list[str], reason: str) -> None:
    outcome = mended(accumulation(*lines), "DDP113")
    assert outcome.changed == []
    assert [reason in text for text in refusals(outcome)] == [True]


# DDP401


def lone(body: str, before: str = HEAD) -> str:
    return before + f"for step in range(4):\n    model(torch.randn(8, 4)).mean().backward()\n{body}    dist.barrier()\n"


SEVERAL = "    if rank == 0:\n        with torch.no_grad():\n            a = model(torch.randn(8, 4)), model(torch.randn(8, 4))\n"


def test_several_lone_forwards_are_mended_in_rounds() -> None:
    outcome = mended(lone(SEVERAL), "DDP401")
    assert outcome.result.findings == []
    assert "a = model.module(torch.randn(8, 4)), model.module(torch.randn(8, 4))\n" in text_after(outcome)
    assert len(outcome.fixed) == 2


def test_an_explicit_forward_beside_others_is_mended_too() -> None:
    outcome = mended(lone(SEVERAL + "            b = model.forward(torch.randn(8, 4))\n"), "DDP401")
    assert "b = model.module.forward(" in text_after(outcome)
    assert outcome.result.findings == [] and len(outcome.fixed) == 3


def test_a_wrap_under_a_condition_keeps_the_model_without_wrapper_working() -> None:
    head = HEAD.replace("model = DDP(", "model = (").replace(
        "optimizer =", "if dist.is_initialized():\n    model = DDP(model)\noptimizer ="
    )
    body = "\n\ndef evaluate():\n    with torch.no_grad():\n        return model(torch.randn(8, 4)).mean()\n\n\n"
    outcome = mended(lone("    if rank == 0:\n        evaluate()\n", before=head + body), "DDP401")
    assert 'return getattr(model, "module", model)(torch.randn(8, 4)).mean()' in text_after(outcome)
    assert outcome.result.findings == []


def test_a_place_that_other_ranks_reach_as_well_is_only_described() -> None:
    function = "\n\ndef evaluate(net):\n    with torch.no_grad():\n        return net(torch.randn(8, 4)).mean()\n\n\n"
    before = HEAD + function + "evaluate(model)\n"
    outcome = mended(lone("    if rank == 0:\n        evaluate(model)\n", before=before), "DDP401")
    assert outcome.changed == []
    assert {finding.fix.safety for finding in outcome.result.findings if finding.fix} == {"display-only"}


# DDP302


def epochs(sampler: str, loop: str = "for epoch in range(3):", inside: str = "") -> str:
    return (
        f"{HEAD}{sampler}\nloader = DataLoader(data, batch_size=2, sampler=sampler)\n{loop}\n    # one epoch\n{inside}"
        "    for x, y in loader:\n        (model(x) - y).pow(2).mean().backward()\n        optimizer.step()\n"
    )


def test_the_epoch_is_told_first() -> None:
    before = epochs("sampler = DistributedSampler(data)")
    assert text_after(mended(before, "DDP302", unsafe=False)) == before.replace(
        "    # one epoch\n", "    sampler.set_epoch(epoch)\n    # one epoch\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        epochs("sampler = DistributedSampler(data) if dist.get_world_size() > 1 else None"),
        epochs("sampler = None\nif dist.get_world_size() > 1:\n    sampler = DistributedSampler(data)"),
        epochs("sampler = DistributedSampler(data)", loop="for _ in range(3):"),
        epochs("sampler = DistributedSampler(data)", loop="for epoch, name in enumerate('abc'):"),
        epochs("sampler = DistributedSampler(data)", inside="    epoch = epoch + 1\n"),
        epochs("sampler = DistributedSampler(data)", loop="epoch = 0\nwhile epoch < 3:", inside="    epoch += 1\n"),
        epochs("sampler = DistributedSampler(data)", inside="    sampler.set_epoch(0) if epoch else None\n"),
        epochs("sampler = DistributedSampler(data)", inside="    for x in data:\n        sampler.set_epoch(epoch)\n"),
    ],
)
def test_a_sampler_or_epoch_without_a_sure_plain_name_is_left(text: str) -> None:
    outcome = mended(text, "DDP302")
    assert outcome.changed == []


# Text


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("    # one epoch\n", "\t# tab\n").replace("    ", "\t"),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("# one epoch", "# é ✓"),
        lambda text: text.replace("import torch\n", "import torch\r\n", 1),
    ],
    ids=["crlf", "byte-order-mark", "tabs", "no-newline-at-the-end", "not-ascii", "mixed-ends"],
)
def test_all_other_bytes_stay(change: object) -> None:
    assert callable(change)
    before = change(epochs("sampler = DistributedSampler(data)"))
    outcome = mended(before, "DDP302")
    (path,) = outcome.changed
    assert outcome.before[path] == before.encode()
    old, new = before.encode().splitlines(keepends=True), outcome.after[path].splitlines(keepends=True)
    added = [line for line in new if b"set_epoch" in line]
    assert len(added) == 1
    new.remove(added[0])
    assert new == old
    assert added[0].endswith(b"\r\n" if old[0].endswith(b"\r\n") else b"\n")


def test_latin_1_stays_latin_1() -> None:
    text = "# coding: latin-1\n" + epochs("sampler = DistributedSampler(data)  # é")
    Path("train.py").write_bytes(text.encode("latin-1"))
    outcome = apply_fixes(lambda overlay: audit(["train.py"], Options(select=["DDP302"]), overlay=overlay), {}, False)
    (path,) = outcome.changed
    assert "# é\n" in outcome.after[path].decode("latin-1")
    assert len(outcome.after[path]) == len(text) + len("    sampler.set_epoch(epoch)\n")


def test_safe_fixes_leave_the_unsafe_ones_and_count_them() -> None:
    evaluation = "    if rank == 0:\n        with torch.no_grad():\n            model(torch.randn(8, 4))\n"
    text = epochs("sampler = DistributedSampler(data)") + evaluation
    outcome = mended(text + "    dist.barrier()\n", "DDP302,DDP401", unsafe=False)
    assert [finding.code for finding in outcome.fixed] == ["DDP302"]
    assert outcome.held_back == 1
    assert [finding.code for finding in outcome.result.findings] == ["DDP401"]


def test_a_fix_that_changes_nothing_for_the_finding_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    more = cst.parse_statement("print()")
    monkeypatch.setitem(FIXES, "DDP302", lambda tree, finding: tree.module.with_changes(body=[*tree.module.body, more]))
    outcome = mended(epochs("sampler = DistributedSampler(data)"), "DDP302")
    assert (outcome.changed, outcome.fixed) == ([], [])
    assert refusals(outcome) == ["the finding is still there after the fix"]


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    from ddp_audit.source.files import SourceError

    outcome = mended(epochs("sampler = DistributedSampler(data)"), "DDP302")
    Path("train.py").write_text("pass\n")
    with pytest.raises(SourceError, match="changed meanwhile"):
        outcome.write()
    assert Path("train.py").read_text() == "pass\n"
