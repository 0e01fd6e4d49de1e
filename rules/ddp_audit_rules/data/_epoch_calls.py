"""The call of set_epoch that mends a loop over epochs, in the names that the script has for sampler and epoch."""

from __future__ import annotations

import re

from ddp_audit.findings import Fix, Span
from ddp_audit.tree.nodes import LoaderMade, Node, Program, SetEpoch
from ddp_audit.tree.questions import Pass, samplers_of
from ddp_audit_rules.facts.always import runs_with


def inserted_call(program: Program, sampler: Node, one: Pass) -> Fix | None:
    """The call that is missing, where sampler and epoch have plain names in one file."""
    epochs = one.around[-1]
    made = re.match(r"\s*(\w+)(?:\s*:\s*[\w.]+)?\s*=\s*[\w.]+\(", program.line(sampler.span.path, sampler.span.line))
    epoch = _epoch_of(program, one)
    if epoch is None or sampler.span.path != epochs.span.path:
        return None
    name, detail = "" if made is None else made.group(1), ""
    starts = _from(program, sampler.span)
    if made is None or not starts.startswith(made.group(0).split("=")[-1].strip()):
        name = ""  # what is named there is the loader that the sampler is given to
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
    named = re.fullmatch(r"([\w.]+)\.set_epoch\(.*\)", calls[0].text)
    if epoch is None or len(places) != 1 or named is None or calls[0].span.path != one.around[-1].span.path or calls[0].guards:
        return None
    return _call(named.group(1), epoch)


def _call(name: str, epoch: str, detail: str = "") -> Fix:
    call = f"call `{name}.set_epoch({epoch})`"
    return Fix("safe", f"{call} at the start of each epoch, before the loop over the loader", detail, f"{call} in each epoch")


def _epoch_of(program: Program, one: Pass) -> str | None:
    """The plain name of the epoch."""
    epochs = one.around[-1]
    named = re.match(r"\s*for\s+(\w+)\s+in\b", program.line(epochs.span.path, epochs.span.line))
    return None if named is None or named.group(1) == "_" else named.group(1)


def _loader_name(program: Program, sampler: Node, one: Pass) -> str:
    """The name by which the loop over epochs has the loader, where that surely holds this sampler; empty where it has none."""
    assert one.made is not None
    epochs, text = one.around[-1], one.iterate.text
    over = re.fullmatch(r"(?:enumerate\()?((?:self\.)?\w+)(?:, *(?:start=)?\d+)?\)?", text)
    held = samplers_of(one.made)
    if over is None or len(held) != 1 or one.made.loops or not runs_with(program, sampler, one.made):
        return ""
    if any(n.number > one.made.number and n.span == one.made.span for n in program.of(LoaderMade)):
        return ""
    inside = [c for c in one.iterate.calls if c.path == epochs.span.path and epochs.span.line <= c.line <= epochs.span.end_line]
    if not inside:
        return over.group(1)
    # in a method that the loop calls, on the same object
    methods = all(_from(program, c).startswith("self.") for c in inside)
    return over.group(1) if over.group(1).startswith("self.") and methods and one.iterate.span.path == epochs.span.path else ""


def _from(program: Program, span: Span) -> str:
    """The text of a line from where a place begins."""
    lines = program.sources.get(span.path, [])
    return lines[span.line - 1][span.column - 1 :] if 0 < span.line <= len(lines) else ""
