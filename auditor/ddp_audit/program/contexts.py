"""What a context manager does to gradients, and what its `as` binds."""

from __future__ import annotations

from ddp_audit.program.values import (
    Const,
    Expr,
    Ext,
    Obj,
    Unknown,
    Value,
    the_object,
)


def context_effect(context: Value) -> str:
    """What a context manager does to gradients: no_grad, enable_grad, or nothing."""
    if isinstance(context, Ext) and context.name in ("torch.no_grad", "torch.inference_mode"):
        return "no_grad"
    target = the_object(context, "context")
    return str(target.info) if target is not None and target.info else ""


def sets_gradients(value: Value) -> bool:
    """Whether a statement that gives this sets the gradient mode from there on, and not as a context: set_grad_enabled()."""
    return isinstance(value, Obj) and value.cls == "torch.set_grad_enabled"


def entered(context: Value) -> Value:
    """What `with .. as name` binds."""
    if isinstance(context, (Obj, Expr, Const)):
        return context
    by = context.by if isinstance(context, Unknown) else None
    return Unknown(taint=context.taint, deps=context.deps, by=by)
