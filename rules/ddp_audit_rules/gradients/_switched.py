"""What becomes of parameters whose requires_grad is set after the wrap: shared by what asks whether the reducer knows them."""

from __future__ import annotations

from ddp_audit.tree.nodes import Backward, Node, Program, RequiresGrad, Wrap
from ddp_audit.tree.questions import forwards_behind, module_of, unwrapped
from ddp_audit.tree.values import Const, Obj
from ddp_audit_rules.facts.training import is_set, wrap_of, wrapped_keys


def _touched(program: Program, node: Node) -> set[tuple[object, ...]]:
    module = module_of(node.target)
    inner = None if module is None else unwrapped(module)
    return program.modules.inside(inner.key) if inner is not None else set()


def frozen_before(program: Program, node: RequiresGrad, wrapper: Obj) -> list[RequiresGrad]:
    """What switched these parameters off before the wrap, where nothing switched them on again."""
    wrap = wrap_of(program, wrapper)
    mine = _touched(program, node)
    before = [n for n in program.of(RequiresGrad) if wrap is not None and n.number < wrap.number and _touched(program, n) & mine]
    if not before or not isinstance(before[-1].value, Const) or before[-1].value.value is not False:
        return []
    return before[-1:]


def switched_on(program: Program, node: RequiresGrad, wrapper: Obj, wrap: Wrap) -> str:
    """How sure it is that parameters are switched on which the reducer does not know; empty where it knows them."""
    frozen = frozen_before(program, node, wrapper)
    if not frozen:
        return ""
    return "possible" if any(g.against_default for g in frozen[0].guards) else "likely"


def switched_off(program: Program, node: RequiresGrad, wrapper: Obj, wrap: Wrap) -> str:
    """How sure it is that the reducer waits for parameters that are switched off; empty where it does not."""
    tolerant = [is_set(wrap, option) for option in ("find_unused_parameters", "static_graph")]
    target = node.object
    assert target is not None
    whole = target.key in (wrapper.key, getattr(unwrapped(wrapper), "key", None)) and not node.part
    if True in tolerant or whole or program.modules.has_parameters(target.key) is False or frozen_before(program, node, wrapper):
        return ""
    if _restored(program, node, wrapper) or _all_switched_off(program, node, wrapper):
        return ""
    return "possible" if None in tolerant else "likely"


def _restored(program: Program, node: RequiresGrad, wrapper: Obj) -> bool:
    """Whether the parameters are switched on again before anything goes back through the wrapper."""
    mine = _touched(program, node)
    for later in program.nodes[node.number + 1 :]:
        if isinstance(later, Backward) and any(
            f.object is not None and f.object.key == wrapper.key for f in forwards_behind(program, later)
        ):
            return False
        on = isinstance(later, RequiresGrad) and isinstance(later.value, Const) and later.value.value is True
        if on and mine <= _touched(program, later):
            return True
    return False


def _all_switched_off(program: Program, node: RequiresGrad, wrapper: Obj) -> bool:
    """Whether every module of the wrapper with parameters is switched off together with this one, one by one."""
    off: set[tuple[object, ...]] = set()
    for other in program.of(RequiresGrad):
        value = other.value
        if other.loops == node.loops and isinstance(value, Const) and value.value is False and not other.part:
            off |= _touched(program, other)
    rest = wrapped_keys(program, wrapper) - off - {wrapper.key}
    children = program.modules.children
    return all(program.modules.has_parameters(key) is False for key in rest if not children.get(key))
