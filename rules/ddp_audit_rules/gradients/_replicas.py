"""Weights that ranks have for themselves: loaded, drawn or written on some of them, or never sent by the wrapper."""

from __future__ import annotations

from ddp_audit.findings import Related
from ddp_audit.tree.nodes import LoadState, ParameterWrite, Program, Save, Wrap
from ddp_audit.tree.questions import module_of, one_stream, unwrapped
from ddp_audit.tree.values import RANK, Made, Unknown, Value, constant, options, path_key, the_object
from ddp_audit_rules.facts.training import shared_again


def why_unequal(program: Program, node: LoadState | ParameterWrite) -> str:
    """Why ranks have different weights after a node; empty where they have not, as far as is known."""
    guards = node.rank_guards
    if guards and all(RANK in g.taint for g in guards):
        other_arm = {(g.span, g.text, not g.polarity) for g in guards}  # the parts of one condition stand at one place
        twins = [n for n in program.of(type(node)) if any((g.span, g.text, g.polarity) in other_arm for g in n.guards)]
        return "" if twins else f"on {guards[-1].ranks().removeprefix('only ')} alone"
    if guards:
        return ""
    if isinstance(node, LoadState):
        path = _path_of_rank(node.args.get("state"))
        return "" if path is None or _is_saved_here(program, path) else "from a file of each rank's own"
    if node.what == "drawn" and not one_stream(program, "torch", node.number):
        return "from random streams that differ between the ranks"
    return ""


def _path_of_rank(state: Value | None, depth: int = 0) -> Value | None:
    """The path that holds the rank and from which a state dict was loaded."""
    if state is None or depth > 6:
        return None
    for option in options(state):
        if isinstance(option, Unknown) and isinstance(option.by, Made):
            if option.by.name == "torch.load":
                return next((arg for arg in option.by.args[:1] if RANK in arg.taint), None)
            found = _path_of_rank(option.by.args[0], depth + 1) if option.by.args else None
            if found is not None:
                return found
    return None


def _is_saved_here(program: Program, path: Value) -> bool:
    """Whether the program saves to such a path: each rank then goes on with its own state of weights that were equal."""
    key = path_key(path)
    saved = (node.args["path"] for node in program.of(Save) if "path" in node.args)
    return key is not None and any(path_key(other) == key for other in saved)


def drawn_apart(program: Program, wrap: Wrap) -> Related | None:
    """Where a module was made whose weights differ by rank and are not sent; None where they are sent, equal or not known."""
    if constant(wrap.args.get("init_sync")) is not False or wrap.style != "ddp" or shared_again(program, wrap):
        return None
    wrapper = the_object(wrap.target, "ddp")
    module = None if wrapper is None else unwrapped(wrapper)
    if wrapper is None or module is None or module.made is None or not program.modules.has_parameters(module.key):
        return None
    loads = [module_of(n.target) for n in program.of(LoadState) if not n.rank_guards]
    if any(loaded is not None and loaded.key in (module.key, wrapper.key) for loaded in loads):
        return None
    made = module.made
    after = next((n for n in program.nodes if n.span.path == made.path and n.span.line > made.line), wrap)
    alike = one_stream(program, "torch", after.number)
    return None if alike else Related(made.path, made.line, "model", "each rank draws its weights")
