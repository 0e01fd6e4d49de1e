"""A look inside wrapped models: their forward, lowered by itself, with each module and parameter that it touches.

The nodes are kept apart from those of the program (`Program.inside`, by the key of the wrapper), since rules on the training loop
do not ask for them. Kinds, in addition to those of the program:

* use: a module or parameter is touched. target: it; detail whole: all that is inside it, listed: a list of modules is looked at, of
  which each may be used by itself.
* checkpoint: a part is recomputed in backward. target: it; args: use_reentrant; detail modules: keys of what it touches, first:
  number of its first node.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program.contracts import Contract, Contracts, generic
from ddp_audit.program.functions import call_function
from ddp_audit.program.model import Inside
from ddp_audit.program.modules import Key, module_of, unwrapped
from ddp_audit.program.nodes import Checkpoint, Forward, ModuleUse, Wrap
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.uses import Looking
from ddp_audit.program.values import Const, Obj, Unknown, Value

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_KEPT = ("block", "guards", "loops", "calls", "no_sync", "tries", "here", "grad", "steps", "quiet_calls", "call_counts", "looking")
_STEPS = 6_000  # of one forward


def look_inside(lw: Lowering) -> None:
    """Lowers the forward of each wrapped module of a project class."""
    forwards: dict[Key, Forward] = {}
    for node in lw.program.of(Forward):
        if node.object is not None and node.through == "wrapper" and node.grad is not False:
            forwards.setdefault(node.object.key, node)
    for wrap in list(lw.program.of(Wrap)):
        wrapper = wrap.object
        module = None if wrapper is None else unwrapped(wrapper)
        if wrapper is None or module is None or wrap.style != "ddp" or wrapper.key in lw.program.inside:
            continue
        made = _forward_of(lw, module, forwards.get(wrapper.key))
        if made is not None:
            lw.program.inside[wrapper.key] = made


def _forward_of(lw: Lowering, module: Obj, call: Forward | None) -> Inside | None:
    """The forward of a module; None where it could not be followed to its end."""
    found = module.cls.find("forward") if isinstance(module.cls, ClassInfo) else None
    if found is None:
        return None
    program = lw.program
    kept = {name: getattr(lw, name) for name in _KEPT}
    nodes, limits = program.nodes, list(program.limits)
    program.nodes = []
    for name in ("block", "guards", "loops", "calls", "no_sync", "tries"):
        setattr(lw, name, [])
    lw.here, lw.grad, lw.steps, lw.quiet_calls, lw.call_counts = module.cls.frame, True, _most_steps() - _STEPS, {}, {}
    lw.looking = looking = Looking({module.key})
    args = [] if call is None else [value for name, value in call.args.items() if name.isdigit()]
    kwargs = {} if call is None else {name: value for name, value in call.args.items() if not name.isdigit()}
    info = FunctionInfo("forward", found[1], found[0].frame, found[0])
    result = call_function(lw, info, args, kwargs, found[1], receiver=module, unknown_arguments=call is None)
    whole = program.limits == limits
    made = Inside(program.nodes, looking.followed, call is not None, looking.asked, result)
    program.nodes, program.limits[:] = nodes, limits
    for name, value in kept.items():
        setattr(lw, name, value)
    return made if whole else None


def _most_steps() -> int:
    from ddp_audit.program.lowering import MAX_STEPS

    return MAX_STEPS


def follow(lw: Lowering, target: Obj, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call of a module during a look inside: the forward of a project class is followed. None for other modules."""
    found = target.cls.find("forward") if isinstance(target.cls, ClassInfo) else None
    if lw.looking is None or found is None or id(found[1]) in lw.active:
        return None
    lw.looking.followed.add(target.key)
    return call_function(lw, FunctionInfo("forward", found[1], found[0].frame, found[0]), args, kwargs, node, receiver=target)


def _checkpoint(name: str) -> Contract:
    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from ddp_audit.program.calls import dispatch

        function = args[0] if args else kwargs.get("function", kwargs.get("functions", Unknown()))
        start = len(lw.program.nodes)
        owner = module_of(function)
        rest = {k: v for k, v in kwargs.items() if k not in ("use_reentrant", "preserve_rng_state", "function", "context_fn")}
        called = name == "checkpoint"
        result = dispatch(lw, node, function, args[1:], rest) if called else generic(args, kwargs, lw.text(node))
        touched = {n.object.key for n in lw.program.nodes[start:] if isinstance(n, ModuleUse) and n.object is not None}
        if owner is not None and owner.kind == "module":
            touched.add(owner.key)
        given = kwargs.get("use_reentrant", Const(value=None))
        lw.emit(node, Checkpoint(target=function, use_reentrant=given, modules=touched, first=start))
        return result

    return call


for _name in ("checkpoint", "checkpoint_sequential"):
    CONTRACTS.names[f"torch.utils.checkpoint.{_name}"] = _checkpoint(_name)
