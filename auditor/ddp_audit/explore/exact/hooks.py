"""Communication hooks and autograd functions of the project: what their own code issues while a backward pass runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddp_audit.events import COLLECTIVE, DDP_BUCKET, Event
from ddp_audit.explore.exact import calls, tensors
from ddp_audit.explore.exact.contents import tensors_in, unknown
from ddp_audit.explore.exact.values import MISSING, Class, Function, Lib, Module, Native, Raised, Tensor, Unknown, error
from ddp_audit.knowledge import functions, kinds
from ddp_audit.machine.buckets import total
from ddp_audit.machine.comm_hooks import HOOKS, CommHook, PowerSgd
from ddp_audit.machine.module import ParamSpec

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


@dataclass(slots=True, eq=False)
class Bucket:
    """What DDP gives a communication hook: a bucket of gradients, flattened."""

    buffer: Tensor
    index: int
    is_last: bool

    def attribute(self, it: Interpreter, name: str) -> Any:
        """The methods of a GradBucket."""
        known = {"buffer": self.buffer, "index": self.index, "is_last": self.is_last, "gradients": [self.buffer]}
        if name in known:
            return Native(lambda: known[name])
        return Native(lambda *args: None if name == "set_buffer" else Unknown(name))


def power_sgd(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`PowerSGDState(..)`. Raises what it raises for a start that comes too early."""
    name = "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState"
    given = {**functions.defaults(name), **functions.given(name, args, kwargs)}
    rank, start, rate = (given[name] for name in functions.parameters(name)[1:])
    if not isinstance(rank, int) or not isinstance(start, int) or not isinstance(rate, (int, float)):
        return Unknown("a state of PowerSGD")
    if start <= 1 and (kwargs.get("use_error_feedback") is not False or kwargs.get("warm_start") is not False):
        raise error("ValueError", "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled")
    return PowerSgd(rank, start, rate)


def _power_sgd(it: Interpreter, state: PowerSgd, group: str) -> CommHook:
    plain = state.hook(group)

    def made(index: int, params: Sequence[ParamSpec], last: bool) -> list[Event]:
        assert plain.made is not None
        found = plain.made(index, params, last)
        if not state.ordered:
            it.bound("the order in which PowerSGD sends the factors of several buckets is a race between its callbacks")
        return found

    return CommHook(plain.name, made=made)


def comm_hook(it: Interpreter, state: object, hook: object, group: str) -> CommHook | None:
    """The machine's hook for what `register_comm_hook` was given: one of torch's, or a function of the project."""
    if isinstance(hook, Lib):
        if isinstance(state, PowerSgd) and hook.name.endswith(".powerSGD_hook"):
            return _power_sgd(it, state, group)
        return HOOKS.get(hook.name.rsplit(".", 1)[-1])
    function = hook if isinstance(hook, Function) else getattr(hook, "function", None)
    if not isinstance(function, Function):
        return None
    sends, divides = _sends_in(function.node), _divides(function.node)
    if sends and not divides:
        it.note(f"the communication hook {function.name} divides by nothing: gradients come out {it.world_size} times too large")

    def made(index: int, params: Sequence[ParamSpec], last: bool) -> list[Event]:
        numel, dtype = total(params)
        bucket = Bucket(Tensor(None if numel is None else (numel,), dtype), index, last)
        found = _issued(it, hook, [state, bucket], f"the communication hook {function.name}")
        # DDP waits at the end of the backward for what a hook has started.
        return [
            replace(event, origin=DDP_BUCKET, detail={k: v for k, v in event.detail.items() if k != "work"})
            for event in found
            if event.kind == COLLECTIVE
        ]

    return CommHook(function.name, sends, divides, None, made)


def _names(node: ast.AST) -> set[str]:
    found = (getattr(inner, "attr", None) or getattr(inner, "id", None) for inner in ast.walk(node))
    return {name for name in found if isinstance(name, str)}


def _sends_in(node: ast.AST) -> bool:
    """Whether some code names a collective that carries tensors."""
    return any(kinds.is_kind(name, "sums-up", "gathers", "result-on-all", "sizes-must-be-equal") for name in _names(node))


def _divides(node: ast.AST) -> bool:
    """Whether some code divides or multiplies, or names an operation that does."""
    if any(isinstance(inner, (ast.Div, ast.FloorDiv, ast.Mult)) for inner in ast.walk(node)):
        return True
    return any(kinds.is_kind(name, "division", "product", "averages") for name in _names(node))


def _issued(it: Interpreter, function: Any, args: list[Any], what: str) -> list[Event]:
    """The events of a call, taken out of the run again: they stand among those of the backward that makes it."""
    start, before = len(it.events), it.grad
    it.grad = False
    try:
        calls.call(it, function, args, {})
    except Raised:
        it.bound(f"{what} raises an exception, which is not followed")
    finally:
        it.grad = before
    found = it.events[start:]
    del it.events[start:]
    return found


@dataclass(slots=True, eq=False)
class Ctx:
    """The `ctx` of an autograd function."""

    saved: tuple[Any, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)

    def attribute(self, it: Interpreter, name: str) -> Any:
        """What was saved, and what was set."""
        if name == "save_for_backward":
            return Native(self._save)
        if name in ("saved_tensors", "saved_variables"):
            return self.saved
        if name.startswith(("mark_", "set_")):
            return Native(lambda *args: None)
        return self.attrs.get(name, Unknown(name))

    def _save(self, *given: Any) -> None:
        self.saved = given

    def set_attribute(self, it: Interpreter, name: str, value: Any) -> None:
        """`ctx.name = value`."""
        self.attrs[name] = value


@dataclass(slots=True, eq=False)
class Applied:
    """One use of an autograd function whose backward issues collectives, among what a tensor was computed from."""

    cls: Class
    ctx: Ctx
    result: Any
    number: int
    done: bool = False

    def backward(self, it: Interpreter) -> None:
        """Runs its backward. Raises what that raises."""
        method = self.cls.find("backward")
        given = [Tensor(t.shape, t.dtype) for t in tensors_in(self.result)]
        before, it.grad = it.grad, False
        try:
            calls.invoke(it, method, [self.ctx, *given], {}, None)
        finally:
            it.grad = before


def apply(it: Interpreter, cls: Class, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`F.apply(..)` of a torch.autograd.Function: its forward, whose results depend on all that went in."""
    method = cls.find("forward")
    if not isinstance(method, Function):
        return unknown(*args)
    ctx, apart = Ctx(), cls.find("setup_context")
    before, it.grad = it.grad, False
    try:
        result = calls.invoke(it, method, args if apart is not MISSING else [ctx, *args], kwargs, None)
        if isinstance(apart, Function):
            calls.invoke(it, apart, [ctx, tuple(args), result], {}, None)
    finally:
        it.grad = before
    deps = tensors.dependencies(it, *args, *kwargs.values())
    made = tensors.fresh(result) if not isinstance(result, Unknown) else Tensor(None, None)
    if deps and _sends(cls):
        deps |= {Applied(cls, ctx, made, len(it.events))}
    for tensor in tensors_in(made):
        tensor.deps |= deps
    return made


def _sends(cls: Class) -> bool:
    """Whether the backward of an autograd function may issue something: its own text, or a function of its file, says so."""
    method = cls.find("backward")
    if not isinstance(method, Function):
        return False
    called = {n.func.id for n in ast.walk(method.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    beside = [v for name, v in method.scope.module.variables.items() if name in called and isinstance(v, Function)]
    return any(_sends_in(function.node) for function in (method, *beside))


def run_backwards(it: Interpreter, losses: list[Tensor], buckets: int) -> None:
    """Runs the backward of every autograd function and the hooks behind some losses, the latest first.

    Their collectives come before the bucket's where there is one; where there are several, their order is not known.
    """
    found = {dep for loss in losses for dep in loss.deps if isinstance(dep, (Applied, Hooked))}
    if found and buckets > 1:
        it.bound("the order of gradient buckets and the collectives of an autograd function or a hook is not followed")
    for applied in sorted(found, key=lambda one: -one.number):
        applied.backward(it)


# ---- hooks of modules and tensors


@dataclass(slots=True, eq=False)
class Hook:
    """What registering a hook around the forwards of a module gives; `place` is the list that it is in."""

    function: Any
    with_kwargs: bool
    place: list[Hook]

    def attribute(self, it: Interpreter, name: str) -> Any:
        """`remove`."""
        return Native(lambda: self._remove(it)) if name == "remove" else Unknown(name)

    def _remove(self, it: Interpreter) -> None:
        if self in self.place:
            self.place.remove(self)
            it.effects += 1


def _forward_hook(when: str) -> Callable[..., Hook]:
    def register(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Hook:
        place = module.before if when == "before" else module.after
        made = Hook(args[0] if args else kwargs.get("hook"), kwargs.get("with_kwargs") is True, place)
        place.insert(0 if kwargs.get("prepend") is True else len(place), made)
        it.effects += 1  # a forward that was remembered runs again
        return made

    return register


def around(
    it: Interpreter, holder: Module, module: Any, args: list[Any], kwargs: dict[str, Any], run: Callable[[list[Any], Any], Any]
) -> Any:
    """What a forward gives with the hooks of `holder` around it, which may give it other arguments and another result."""
    for hook in list(holder.before):
        changed = calls.call(it, hook.function, [module, tuple(args), *([kwargs] if hook.with_kwargs else [])], {})
        if hook.with_kwargs and isinstance(changed, tuple) and len(changed) == 2:
            changed, kwargs = changed
        if changed is not None:
            args = list(changed) if isinstance(changed, tuple) else [changed]
    result = run(args, kwargs)
    for hook in list(holder.after):
        given = [module, tuple(args), *([kwargs] if hook.with_kwargs else []), result]
        changed = calls.call(it, hook.function, given, {})
        result = result if changed is None else changed
    return result


@dataclass(slots=True, eq=False)
class Hooked:
    """A hook that a backward runs where it comes to a tensor, among what the tensor was computed from."""

    function: Any
    given: list[Any]
    number: int
    is_there: bool = True

    def backward(self, it: Interpreter) -> None:
        """Runs it. Raises what it raises."""
        before, it.grad = it.grad, False
        try:
            if self.is_there:
                calls.call(it, self.function, self.given, {})
        finally:
            it.grad = before

    def attribute(self, it: Interpreter, name: str) -> Any:
        """`remove`."""
        return Native(self._remove) if name == "remove" else Unknown(name)

    def _remove(self) -> None:
        self.is_there = False


def on_tensor(it: Interpreter, tensor: Tensor, hook: Any) -> Hooked:
    """`tensor.register_hook(hook)`."""
    made = Hooked(hook, [Tensor(tensor.shape, tensor.dtype, frozenset(), True)], len(it.events))
    if tensor.deps:
        tensor.deps |= {made}
    return made


def _backward_hook(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Hook:
    """`register_full_backward_hook` and its like: each forward of the module leaves it in what comes out."""
    function = args[0] if args else kwargs.get("hook")

    def leave(module: Module, given: Any, result: Any) -> None:
        grads = tuple(Tensor(t.shape, t.dtype, frozenset(), True) for t in tensors_in(result))
        unknown_grads = tuple(Tensor(t.shape, t.dtype, frozenset(), True) for t in tensors_in(given))
        made = Hooked(function, [module, unknown_grads, grads], len(it.events))
        for tensor in tensors_in(result):
            if tensor.deps:
                tensor.deps |= {made}

    made = Hook(Native(leave), False, module.after)
    module.after.append(made)
    it.effects += 1
    return made


ON_MODULES: dict[str, Callable[..., Any]] = {
    "register_forward_pre_hook": _forward_hook("before"), "register_forward_hook": _forward_hook("after"),
    "register_full_backward_hook": _backward_hook, "register_backward_hook": _backward_hook,
}  # fmt: skip


__all__ = [
    "ON_MODULES",
    "Applied",
    "Bucket",
    "Ctx",
    "Hook",
    "Hooked",
    "apply",
    "comm_hook",
    "on_tensor",
    "power_sgd",
    "run_backwards",
]
