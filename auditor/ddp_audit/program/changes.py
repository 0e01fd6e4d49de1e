"""What is noted of modules on the way: switched gradients, changes of a wrapped module, moves, scaled gradients."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.meaning import says
from ddp_audit.program.modules import attribute_path, module_of, owners_of
from ddp_audit.program.nodes import ModuleChange, Move, ParameterWrite, RequiresGrad, Scale, ZeroGrad
from ddp_audit.program.operations import bounded
from ddp_audit.program.values import Bound, Const, Expr, Items, Obj, Unknown, Value, join_taint, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def inside_wrapper(lw: Lowering, value: Value | None) -> Obj | None:
    """The module that a value is or belongs to, where it is wrapped by now: the wrapper, or a module inside one."""
    if not lw.wrapped:
        return None
    module = module_of(value)
    if module is None:
        return None
    return module if module.kind == "ddp" or lw.program.modules.wrapper_around(module.key) is not None else None


def element_of_parameters(parameters: Obj) -> Value:
    """What a loop over the parameters of a module yields."""
    owner: Obj = parameters.info
    one = Obj(key=("parameter", owner.key), kind="parameter", info=owner, cls="part", text="parameter")
    return Items(items=(Unknown(text="name"), one), kind="tuple") if parameters.cls == "named" else one


def joined_parameters(left: Value, right: Value) -> Value | None:
    """`left + right` of lists of parameters; None for other things."""
    if not (owners_of(left)[0] or owners_of(right)[0]) or not all(isinstance(v, (Items, Obj)) for v in (left, right)):
        return None
    items = [v for part in (left, right) for v in (part.items if isinstance(part, Items) and part.keys is None else (part,))]
    return bounded(Items(items=tuple(items), kind="list", many=True, taint=join_taint(left, right)))


def set_requires_grad(lw: Lowering, node: ast.AST, owner: Value, value: Value) -> None:
    """Notes `owner.requires_grad = value` and `owner.requires_grad_(value)`."""
    module = module_of(owner)
    if module is None:
        return
    in_loop = the_object(owner, "parameter") is not None
    part = bool(attribute_path(owner)) or (in_loop and any(guard.loops >= len(lw.loops) for guard in lw.guards))
    lw.emit(node, RequiresGrad(target=module, value=value, part=part))


def note_assignment(lw: Lowering, node: ast.AST, owner: Obj, attr: str, old: Value | None, value: Value) -> None:
    """Notes `owner.attr = value` where it puts a module or a parameter into a module that is wrapped by now."""
    new = the_object(value, "module")
    before = the_object(old, "module") if old is not None else None
    tied = None
    if new is None and isinstance(value, Bound) and value.name in ("weight", "bias"):
        tied = module_of(value)
    if (new is None and tied is None and before is None) or (new is not None and before is not None and new.key == before.key):
        return
    if inside_wrapper(lw, owner) is not None:
        what = "tied" if tied is not None else "replaced" if before is not None else "added"
        lw.emit(node, ModuleChange(target=owner, value=value, old=old or Unknown(), what=what, name=attr))


def replace_layer(lw: Lowering, node: ast.AST, owner: Value, index: Value, value: Value) -> None:
    """Notes that `container[2] = layer` puts a layer into the container, and that it is wrapped by now where it is."""
    container, new = the_object(owner, "module"), the_object(value, "module")
    if container is None or new is None:
        return
    lw.children.setdefault(container.key, set()).add(new.key)
    if inside_wrapper(lw, container) is not None:
        old = lw.program.modules.layer(container, index) or Unknown()
        lw.emit(node, ModuleChange(target=container, value=value, old=old, what="replaced", name=lw.text(node)))


def note_move(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Notes `.to(..)`, `.half()` and their like, which give the parameters of a module new storage."""
    if not is_kind(bound.name, "moves-module") or module_of(bound.receiver) is None or attribute_path(bound.receiver):
        return
    if the_object(bound.receiver, "parameter") is not None:  # of a loop over parameters or modules: only some may move
        return
    where = args[0] if args else kwargs.get("device", kwargs.get("dtype", Const(value=None)))
    lw.emit(node, Move(target=module_of(bound.receiver), where=where, name=bound.name))


def note_scale(lw: Lowering, node: ast.AST, target: Value, op: str, by: Value) -> None:
    """Notes `p.grad /= n`, `flat.div_(world_size)`, `loss / world_size`: a gradient scaled, or a thing by the number of ranks."""
    if counts_ranks(by) or "grad" in attribute_path(target) or ".grad" in target.text:
        lw.emit(node, Scale(target=target, by=by, op=op))


def counts_ranks(value: Value) -> bool:
    """Whether a value has the number of ranks in it."""
    if isinstance(value, Expr):
        return value.op == "world_size" or any(counts_ranks(arg) for arg in value.args)
    return isinstance(value, Unknown) and says(value, "counts-ranks")


def note_write(lw: Lowering, node: ast.AST, owner: Value, what: str = "written") -> None:
    """Notes that values of a parameter are written in place, drawn again or replaced; not those of a gradient."""
    path, module = attribute_path(owner), module_of(owner)
    if module is not None and "grad" not in path and (path or the_object(owner, "parameter") is not None):
        lw.emit(node, ParameterWrite(target=module, what=what))


def note_cleared(lw: Lowering, node: ast.AST, owner: Value) -> None:
    """Notes `p.grad = None` or `p.grad.zero_()` in a loop over all parameters of a module, which zeroes their gradients."""
    loop, module = (lw.loops[-1] if lw.loops else None), module_of(owner)
    over = None if loop is None else loop.over
    if module is None or not (isinstance(over, Obj) and over.kind == "parameters") or the_object(owner, "parameter") is None:
        return
    depth = len(lw.loops)
    if not all(guard.loops < depth or _asks_for_gradient(guard.test) for guard in lw.guards):
        return  # only of some parameters, as those of one layer
    made = ZeroGrad(target=module)
    if lw.emit(node, made) is not None:
        made.loops, made.guards = made.loops[:-1], tuple(guard for guard in made.guards if guard.loops < depth)


def _asks_for_gradient(test: Value) -> bool:
    """Whether a condition asks whether a parameter has a gradient at all: `p.grad is not None`."""
    match test:
        case Expr(op="is" | "is not", args=(asked, Const(value=None))):
            return "grad" in attribute_path(asked) or asked.text.endswith(".grad")
    return False


def by_prefix(lw: Lowering, node: ast.Call, name: str, args: list[Value]) -> Value | None:
    """`torch.nn.init.xavier_uniform_(parameter)` and its like; None for other names."""
    if not name.startswith("torch.nn.init.") or not args:
        return None
    constant = name.endswith(("zeros_", "ones_", "constant_", "eye_", "dirac_"))
    note_write(lw, node, args[0], "written" if constant else "drawn")
    return args[0]
