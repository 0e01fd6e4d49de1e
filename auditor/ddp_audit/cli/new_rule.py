"""`ddp-audit new-rule CODE NAME`: the files that a new rule begins with.

In a clone of ddp-audit these are the rule in the folder of its family and a case with a bad, a fixed and two correct programs.
Elsewhere they are a rule of the project's own, with its test.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ddp_audit.cli.parser import Subparsers, Usage

FAMILIES = {
    "1": "gradients", "2": "collectives", "3": "data", "4": "buffers", "5": "launch", "6": "devices", "7": "files", "8": "numerics",
}  # fmt: skip
RULES = Path("rules", "ddp_audit_rules")
CASES = Path("tests", "cases")

_PROGRAM = '''"""{docstring}"""

import torch.distributed as dist

dist.init_process_group("gloo")
{body}
dist.destroy_process_group()
'''
_BAD = "if dist.get_rank() == 0:\n    dist.barrier()  # TODO: the hazard"
_FIXED = "dist.barrier()  # TODO: the same program without the hazard"
_ALIKE = "rank = dist.get_rank()\ndist.barrier()  # TODO: looks like the hazard, and is correct"

_RULE = '''"""{code}: TODO: the hazard in one line."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.api import NOT_EXERCISED, Context, Finding, RecordedRun, Rule, first_of_each_place, guard_relations
from ddp_audit.tree.nodes import Collective


class {cls}(Rule):
    code = "{code}"
    name = "{name}"
    level = "warning"
{preview}    summary = "TODO: what it reports."
    rationale = "TODO: what goes wrong, and on which ranks."
    exceptions = "TODO: what it does not report, and why."
    trace_evidence = "TODO: what a trace shows of it."
    source = "TODO: where the facts come from: torch's version, file and function."
    fix_hint = "TODO: one imperative sentence"
    outcome = "hang 0"
    bad = \'\'\'{bad}\'\'\'
    good = \'\'\'{good}\'\'\'

    def check(self, context: Context) -> Iterable[Finding]:
        """Yield the findings. This example reports barriers that only some ranks reach."""
        for node in first_of_each_place(context.program.of(Collective)):
            if node.op == "barrier" and node.rank_guards:
                message = "TODO: what happens, on which ranks, why, in at most 25 words."
                yield self.finding(node.span, message, "TODO: details.", related=guard_relations(node), guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Return what a recorded run shows of a finding."""
        return NOT_EXERCISED
'''
_TEST = """from {module} import {cls}

from ddp_audit.api import check_examples


def test_{module}():
    rule = {cls}()
    assert check_examples(rule, valid=[rule.good], invalid=[rule.bad]) == []
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "new-rule",
        help="make the files of a new rule",
        description="Makes the files that a new rule begins with: in a clone of ddp-audit the rule and its case, elsewhere a rule "
        "of the project's own and its test.",
    )
    parser.add_argument("code", metavar="CODE", help="letters and three digits, such as DDP215 or ACME001")
    parser.add_argument("name", metavar="NAME", help="words with hyphens, such as late-group")
    parser.add_argument("--folder", default="lint", metavar="DIR", help="of a project's own rules (default: lint)")


def run(args: argparse.Namespace) -> int:
    """Make the files, and print what comes next. Raise Usage."""
    code, name = args.code.upper(), args.name.lower()
    if not re.fullmatch(r"[A-Z]{2,10}\d{3}", code):
        raise Usage(f"'{args.code}' is not a code: it has letters and three digits, such as DDP215 or ACME001")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name):
        raise Usage(f"'{args.name}' is not a name: it has at least two words with hyphens, such as late-group")
    _refuse_taken(code, name)
    module = name.replace("-", "_")
    is_own = not RULES.is_dir()
    if not is_own and (not code.startswith("DDP") or code[3] not in FAMILIES):
        raise Usage(f"'{code}' belongs to no family: rules here have codes from DDP1xx to DDP8xx")
    files = _own_files(code, name, module, Path(args.folder)) if is_own else _files(code, name, module)
    taken = [path for path in files if path.exists()]
    if taken:
        raise Usage(f"{taken[0].as_posix()}: exists already")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Usage(f"{path.as_posix()}: cannot be written: {error.strerror or error}") from None
        print(path.as_posix())
    if is_own:
        print(f"Next: replace each TODO, add '{args.folder}' to `rules` in the settings, and run pytest {args.folder}.")
        print("`ddp-audit check --allow-project-rules` loads the rule.")
    else:
        case = (CASES / code.lower()).as_posix()
        print(f"Next: replace each TODO. `ddp-audit check --preview {case}` shows what is found in the programs;")
        print(f"`make cases NAMES={code}` runs them on two ranks (CONTRIBUTING.md).")
    return 0


def _refuse_taken(code: str, name: str) -> None:
    from ddp_audit.audit import installed_rules, rule_names

    names = rule_names(installed_rules())
    if code in names:
        raise Usage(f"the code {code} is taken by {names[code]}")
    other = next((one for one, taken in names.items() if taken == name), None)
    if other is not None:
        raise Usage(f"the name {name} is taken by {other}")


def _rule(code: str, name: str, *, preview: bool = False) -> tuple[str, str]:
    """The class name and the text of the rule."""
    cls = "".join(part.capitalize() for part in name.split("-"))
    bad = _PROGRAM.format(docstring="TODO: what the program does wrong.", body=_BAD)
    good = _PROGRAM.format(docstring="TODO: what the program does right.", body=_FIXED)
    return cls, _RULE.format(code=code, name=name, cls=cls, bad=bad, good=good, preview="    preview = True\n" * preview)


def _files(code: str, name: str, module: str) -> dict[Path, str]:
    folder = CASES / code.lower() / module
    bad = f"# expects: {code}:9\n# outcome: hang 0\n" + _PROGRAM.format(docstring="TODO: what is wrong.", body=_BAD)
    clean = "# expects: nothing\n# outcome: clean\n"
    programs = {"fixed": _FIXED, "alike_one": _ALIKE, "alike_two": _ALIKE}
    return {
        RULES / FAMILIES[code[3]] / f"{module}.py": _rule(code, name, preview=True)[1],
        folder / "bad.py": bad,
        **{
            folder / f"{stem}.py": clean + _PROGRAM.format(docstring="TODO: what the program does.", body=body)
            for stem, body in programs.items()
        },
    }


def _own_files(code: str, name: str, module: str, folder: Path) -> dict[Path, str]:
    cls, text = _rule(code, name)
    marked = text.replace("dist.barrier()  # TODO: the hazard\n", "dist.barrier()  # finding\n")
    return {folder / f"{module}.py": marked, folder / f"test_{module}.py": _TEST.format(module=module, cls=cls)}
