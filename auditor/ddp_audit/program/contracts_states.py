"""What calls mean that take the state of a module, set it, or rename its keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.program.contracts import Contracts, method_made
from ddp_audit.program.modules import unwrapped
from ddp_audit.program.nodes import Collective, LoadState, RenamedKeys
from ddp_audit.program.values import Bound, Const, Obj, Unknown, Value, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_DEPTH = 4  # of the names of parts: `encoder.stem.block.conv`


def _state_dict(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    wrapper = the_object(bound.receiver, "other-wrapper")
    if wrapper is not None and wrapper.cls == "fsdp":  # also where only rank 0 keeps what is gathered
        what = "FSDP's state_dict gathers the shards of all ranks"
        lw.emit(node, Collective(target=bound.receiver, op="state_dict", hidden=True, what=what))
    seen = replace(bound, receiver=_with_parts(lw, bound.receiver))
    return Unknown(text=lw.text(node), by=method_made(seen, args, kwargs))


def _load_state_dict(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    arguments = dict(zip(("state", "strict", "assign"), args, strict=False))
    arguments |= {"state" if name == "state_dict" else name: value for name, value in kwargs.items()}
    lw.emit(node, LoadState(target=_with_parts(lw, bound.receiver), args=arguments, unused=False))
    return Unknown(text=lw.text(node))


def _with_parts(lw: Lowering, value: Value) -> Value:
    """A module or wrapper with the parts that it has at this point: they may be replaced later, and be compiled then."""
    module = unwrapped(value) if isinstance(value, Obj) and value.kind in ("module", "ddp") else None
    if module is None or not isinstance(value, Obj):
        return value
    return replace(value, parts=tuple(_parts(lw, module, "", _DEPTH)))


def _parts(lw: Lowering, module: Obj, before: str, depth: int) -> Iterator[tuple[str, Obj]]:
    for name, part in lw.state.of(module.key).items():
        if isinstance(part, Obj) and part.kind in ("module", "ddp"):
            yield before + name, part
            if depth > 1 and part.kind == "module":
                yield from _parts(lw, part, f"{before}{name}.", depth - 1)


@CONTRACTS.of("torch.nn.modules.utils.consume_prefix_in_state_dict_if_present")
def _strip_prefix(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    lw.emit(node, RenamedKeys(target=args[0] if args else kwargs.get("state_dict")))
    return Const(value=None)


CONTRACTS.methods.update(state_dict=_state_dict, load_state_dict=_load_state_dict)
