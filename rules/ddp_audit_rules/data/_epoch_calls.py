"""The call of set_epoch that fixes a loop over epochs, in the names that the script has for sampler and epoch."""

from __future__ import annotations

import ast

from ddp_audit.findings import Fix
from ddp_audit.tree.nodes import LoaderMade, Node, Program, SetEpoch
from ddp_audit.tree.questions import Pass, assigned_at, code_at, code_within, dotted, runs_with, samplers_of


def inserted_call(program: Program, sampler: Node, one: Pass) -> Fix | None:
    """The call that is missing, where sampler and epoch have plain names in one file."""
    epochs = one.around[-1]
    epoch = _epoch_of(program, one)
    if epoch is None or sampler.span.path != epochs.span.path:
        return None
    name, detail = assigned_at(program, sampler.span), ""
    if not name or one.iterate.calls[: len(sampler.calls)] != sampler.calls:  # made in a function that has ended before the epochs
        name = _loader_name(program, sampler, one)
        detail = f"by-loader {name}"
        name += ".sampler" if name else ""
    if not name:
        return None
    return _call(name, epoch, detail)


def moved_call(program: Program, one: Pass, calls: list[SetEpoch]) -> Fix | None:
    """The one set_epoch that there is, given the epoch at the start of each."""
    epoch, places = _epoch_of(program, one), {(n.span.path, n.span.line) for n in calls}
    call = code_at(program, calls[0].span, ast.Call)
    name = dotted(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else ""
    if epoch is None or len(places) != 1 or not name or calls[0].span.path != one.around[-1].span.path or calls[0].guards:
        return None
    return _call(name, epoch)


def _call(name: str, epoch: str, detail: str = "") -> Fix:
    call = f"call `{name}.set_epoch({epoch})`"
    return Fix("safe", f"{call} at the start of each epoch, before the loop over the loader", detail, f"{call} in each epoch")


def _epoch_of(program: Program, one: Pass) -> str | None:
    """The plain name of the epoch."""
    epochs = one.around[-1]
    loop = next(
        (n for n in code_within(program, epochs.span.path, epochs.span.line, epochs.span.line) if isinstance(n, ast.For)), None
    )
    return loop.target.id if loop is not None and isinstance(loop.target, ast.Name) and loop.target.id != "_" else None


def _loader_name(program: Program, sampler: Node, one: Pass) -> str:
    """The name by which the loop over epochs has the loader, where that surely holds this sampler; empty where it has none."""
    assert one.made is not None
    epochs, held = one.around[-1], samplers_of(one.made)
    over = _plain_name(one.iterate.text)
    if not over or len(held) != 1 or one.made.loops or not runs_with(program, sampler, one.made):
        return ""
    if any(n.number > one.made.number and n.span == one.made.span for n in program.of(LoaderMade)):
        return ""
    inside = [c for c in one.iterate.calls if c.path == epochs.span.path and epochs.span.line <= c.line <= epochs.span.end_line]
    if not inside:
        return over
    # in a method that the loop calls, on the same object
    calls = [code_at(program, span, ast.Call) for span in inside]
    methods = all(call is not None and dotted(call.func).startswith("self.") for call in calls)
    return over if over.startswith("self.") and methods and one.iterate.span.path == epochs.span.path else ""


def _plain_name(text: str) -> str:
    """The loader's own name in `loader`, `self.loader` or `enumerate(loader, 1)`; empty where it is anything else."""
    try:
        over = ast.parse(text, mode="eval").body
    except SyntaxError:
        return ""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "enumerate" and over.args:
        over = over.args[0]
    name = dotted(over)
    return name if name.removeprefix("self.").isidentifier() else ""
