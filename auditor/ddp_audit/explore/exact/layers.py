"""Modules of an interpreted run: their attributes and their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, containers, hooks, layer_table, tensors, training
from ddp_audit.explore.exact.contents import dtype_of, tensors_in
from ddp_audit.explore.exact.values import MISSING, PLAIN, Class, Function, Module, Native, Param, Tensor, Unknown
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.knowledge.libraries import may_send
from ddp_audit.knowledge.tensors import TYPES

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


def frozen(it: Interpreter, tensor: Tensor, flag: Any) -> Tensor:
    """`tensor.requires_grad_(flag)`."""
    freeze(it, [tensor], flag)
    return tensor


def freeze(it: Interpreter, params: Iterable[Any], flag: Any) -> None:
    """`requires_grad_(flag)` on parameters, passed on to the wrappers that hold them."""
    it.effects += 1  # a forward that was remembered uses other parameters now
    for param in params:
        if isinstance(param, Param):
            param.requires_grad = flag is not False
            for wrapper in it.wrappers:
                name = wrapper.names.get(id(param))
                if name is not None:
                    wrapper.ddp.set_requires_grad(name, param.requires_grad)


# ---- attributes


def attribute(it: Interpreter, module: Module, name: str) -> Any:
    """An attribute or a method of a module."""
    if name == "bias" and isinstance(module.cls, str) and module.attrs.get(name) is False:
        return None  # what its constructor was given
    for table in (module.params, module.buffers, module.children, module.attrs):
        if name in table:
            return table[name]
    if isinstance(module.cls, Class):
        found = module.cls.find(name)
        if found is not MISSING and not (isinstance(found, Function) and name == "__call__"):
            return calls.bound(it, found, module)
    return outside_attribute(it, module, name)


def outside_attribute(it: Interpreter, module: Module, name: str) -> Any:
    """What torch.nn.Module itself offers."""
    if name == "training":
        return module.training
    if name == "__class__":
        return module.cls
    known = METHODS.get(name) or hooks.ON_MODULES.get(name)
    if known is not None:
        return Native(lambda *args, **kwargs: known(it, module, list(args), kwargs), name)
    if name.startswith("register_"):
        return Native(lambda *args, **kwargs: tensors.hooked(it, args))
    outside = module.cls.outside_bases() if isinstance(module.cls, Class) else {str(module.cls)}
    return Unknown(name, quiet=not any(map(may_send, outside)))


def set_attribute(it: Interpreter, module: Module, name: str, value: Any) -> None:
    """`module.name = value`: parameters and modules are registered."""
    for table in (module.params, module.children, module.attrs):
        table.pop(name, None)
    if isinstance(value, Param):
        module.params[name] = value
    elif isinstance(value, Module):
        module.children[name] = value
    elif name in module.buffers:
        module.buffers[name] = value
    else:
        module.attrs[name] = value
    if isinstance(value, (Param, Module)):
        training.changed(it)


def delete_attribute(it: Interpreter, module: Module, name: str) -> None:
    """`del module.name`."""
    found = module.params.get(name) or module.children.get(name)
    for table in (module.params, module.children, module.buffers, module.attrs):
        table.pop(name, None)
    if found is not None:
        training.changed(it)


def _register_buffer(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    name = args[0] if args else kwargs.get("name")
    value = args[1] if len(args) > 1 else kwargs.get("tensor")
    if isinstance(value, Unknown):
        value = Tensor(None, None)
    if isinstance(name, str):
        module.attrs.pop(name, None)
        module.buffers[name] = value
    elif not isinstance(name, str):
        module.opaque_buffers = True


def _register_parameter(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    given = dict(zip(("name", "param"), args, strict=False)) | kwargs
    if isinstance(given.get("param"), Param) and isinstance(given.get("name"), str):
        module.params[given["name"]] = given["param"]


def _add_module(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    given = dict(zip(("name", "module"), args, strict=False)) | kwargs
    if isinstance(given.get("module"), Module) and isinstance(given.get("name"), str):
        module.children[given["name"]] = given["module"]


def _apply(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
    for inner in [m for _, m in module.walk()][::-1]:
        if args:
            calls.call(it, args[0], [inner], {})
    return module


def _train(flag: bool) -> Callable[..., Module]:
    def change(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
        it.modes += 1
        mode = flag and (args[0] is not False if args else kwargs.get("mode", True) is not False)
        for _, inner in module.walk():
            inner.training = mode
        return module

    return change


def _to(name: str) -> Callable[..., Module]:
    def move(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
        dtype = TYPES.get(name) or next((d for d in map(dtype_of, (*args, *kwargs.values())) if d), None)
        if dtype is not None and any(p.dtype != dtype for _, p in module.named_parameters()):
            layer_table.cast(module, dtype)
            training.moved(it, module, dtype)
        kind = name if name in ("cuda", "cpu") else next((k for k in map(_device_kind, (*args, *kwargs.values())) if k), None)
        params = [p for _, p in module.named_parameters()]
        if kind is not None and all(p.device for p in params) and any(p.device != kind for p in params):
            training.moved(it, module, None)
        for param in params if kind is not None or (args and dtype is None) else ():
            param.device = kind
        return module

    return move


def _device_kind(value: Any) -> str | None:
    """The kind of device that an argument of `.to` names; None where it names none, or one that is not known."""
    kind = getattr(value, "type", value)
    if isinstance(kind, str):
        return kind.partition(":")[0]
    return "cuda" if type(kind) is int else None


def _load(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Unknown:
    if kwargs.get("assign") is True:
        for _, inner in module.walk():
            inner.params = {n: Param(p.shape, p.dtype, requires_grad=p.requires_grad) for n, p in inner.params.items()}

        training.changed(it)
    return Unknown("missing and unexpected keys")


def _parameters(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Unknown("parameters", quiet=True) if module_is_opaque(module) else [p for _, p in module.named_parameters()]


def module_is_opaque(module: Module) -> bool:
    """Whether a module or one inside it holds parameters that are not known."""
    return any(inner.opaque for _, inner in module.walk())


def _named(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Unknown("parameters", quiet=True) if module_is_opaque(module) else list(module.named_parameters())


def _state(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _requires_grad(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
    freeze(it, [p for _, p in module.named_parameters()], args[0] if args else kwargs.get("requires_grad", True))
    return module


def _zero_grad(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:

    training.zero_grad(it, [p for _, p in module.named_parameters()], kwargs.get("set_to_none", True) is not False)


METHODS: dict[str, Callable[..., Any]] = {
    "register_buffer": _register_buffer, "register_parameter": _register_parameter, "add_module": _add_module,
    "register_module": _add_module, "append": containers.append, "extend": containers.extend, "update": containers.update,
    "apply": _apply, "train": _train(True), "eval": _train(False), "load_state_dict": _load, "parameters": _parameters,
    "named_parameters": _named, "state_dict": _state, "requires_grad_": _requires_grad, "zero_grad": _zero_grad,
    "modules": lambda it, m, a, k: [inner for _, inner in m.walk()],
    "named_modules": lambda it, m, a, k: list(m.walk()),
    "children": lambda it, m, a, k: [child for _, child in m.own_children()],
    "named_children": lambda it, m, a, k: m.own_children(),
    "buffers": lambda it, m, a, k: [b for _, b in m.named_buffers()],
    "named_buffers": lambda it, m, a, k: list(m.named_buffers()),
    "keys": lambda it, m, a, k: list(containers.entries(m)), "values": lambda it, m, a, k: list(containers.entries(m).values()),
    "items": lambda it, m, a, k: list(containers.entries(m).items()),
    "forward": lambda it, m, a, k: forward(it, m, a, k),
    "share_memory": lambda it, m, a, k: m,
    **{name: _to(name) for name in ("to", "cuda", "cpu", "half", "float", "double", "bfloat16")},
    "__init__": lambda it, m, a, k: None,
}  # fmt: skip


# ---- calls


def call_module(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A call of a module, past any wrapper around it."""

    it.tick()  # a library's module does not count itself, and one module can be in many places
    it.module_depth += 1
    try:
        inner = remembered_forward if it.module_depth == 1 else hooked_forward
        result = inner(it, module, args, kwargs)
    finally:
        it.module_depth -= 1
    return training.past_wrapper(it, result) if it.module_depth == 0 else result


def remembered_forward(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`forward`, which is not run again where it had no effects and nothing that it depends on has changed."""
    key = _key(it, module, args, kwargs)
    known = None if key is None else it.remembered.get(key)
    if known is not None:
        result, used, effects, losses = known
        if effects == it.effects:
            it.losses += losses
            return tensors.again(it, result, used)
    effects, events, start, losses = it.effects, len(it.events), len(it.used), it.losses
    result = hooked_forward(it, module, args, kwargs)
    if key is not None and it.effects == effects and len(it.events) == events:
        it.remembered[key] = (tensors.fresh(result), it.used[start:], effects, it.losses - losses)
    return result


def _key(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a forward depends on in addition to the state of objects, which `effects` counts; None where that cannot be said."""
    known = it.flags.get(id(module))
    if known is None or known[0] != it.modes:
        known = it.flags[id(module)] = (it.modes, module, tuple(inner.training for _, inner in module.walk()))
    parts: list[Any] = [id(module), it.grad, known[2]]
    for name, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, Tensor) and not value.deps and not isinstance(value, Param):
            parts.append((name, value.shape, value.dtype, value.local))
        elif isinstance(value, PLAIN):
            parts.append((name, type(value), value))
        else:
            return None
    return tuple(parts)


def hooked_forward(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The forward of a module with the hooks around it."""
    if not module.before and not module.after:
        return forward(it, module, args, kwargs)
    return hooks.around(it, module, module, args, kwargs, lambda args, kwargs: forward(it, module, args, kwargs))


def forward(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The forward of a module: that of its class, or what a layer of torch gives."""
    cls = module.cls
    if isinstance(cls, Class):
        method = cls.find("forward")
        if isinstance(method, Function):
            return calls.invoke(it, method, args, kwargs, module)
        return _opaque(it, module, args, kwargs)
    last = module.layer
    if last == "Sequential":
        value = args[0] if args else Unknown()
        for child in module.children.values():
            value = call_module(it, child, [value], {})
        return value
    source = next(tensors_in([*args, *kwargs.values()]), None)
    if source is None or module_is_opaque(module) or not _is_followed(module):
        return _opaque(it, module, args, kwargs)
    given = tensors.dependencies(it, *args, *kwargs.values())
    own: set[Any] = set()
    for params, live in layer_table.nodes(module, bool(given)) if it.grad else ():
        own |= tensors.uses(it, [params], live)
    shape, dtype = _result(module, source)
    result = tensors.like(it, source, *args, shape=shape, dtype=dtype)
    result.deps = given | own
    if last in ("LSTM", "GRU", "RNN"):
        return result, _state_of(it, module, source, result)
    if last == "LSTMCell":
        return result, tensors.fresh(result)
    if last == "MultiheadAttention":
        asked = kwargs.get("need_weights", args[4] if len(args) > 4 else True) is not False
        return result, Tensor(None, dtype, result.deps, result.local) if asked else None
    return result


def _state_of(it: Interpreter, module: Module, source: Tensor, result: Tensor) -> Any:
    """The last state of a recurrent layer, which depends on all of its parameters, as its output does."""
    attrs, sizes = module.attrs, []
    for name, default in (("hidden_size", None), ("num_layers", 1), ("proj_size", 0)):
        value = attrs.get(name, default)
        sizes += [value] if isinstance(value, int) else []
    directions = 2 if attrs.get("bidirectional") is True else 1
    shapes: list[tuple[int, ...] | None] = [None, None]
    if source.shape and len(source.shape) in (2, 3) and len(sizes) == 3:
        hidden, count, projected = sizes
        result.shape = (*source.shape[:-1], directions * (projected or hidden))
        batch = source.shape[:-1][0 if attrs.get("batch_first") is True else 1 :][:1] if len(source.shape) == 3 else ()
        shapes = [(directions * count, *batch, projected or hidden), (directions * count, *batch, hidden)]
    states = tuple(Tensor(shape, result.dtype, result.deps, result.local) for shape in shapes)
    return states if module.layer == "LSTM" else states[0]


def _is_followed(module: Module) -> bool:
    """Whether the layers inside a layer of torch are torch's own, so that their order of use is known."""
    return not module.children or all(isinstance(inner.cls, str) for _, inner in module.walk())


def _result(module: Module, source: Tensor) -> tuple[tuple[int, ...] | None, str | None]:
    """Shape and dtype of what a layer gives."""
    last, weight = module.layer, module.params.get("weight")
    rows = weight.shape if weight is not None else None
    if last in ("Linear", "Embedding"):
        dtype = weight.dtype if weight is not None else source.dtype
        if source.shape is None or not rows or (last == "Linear" and not source.shape):
            return None, dtype
        return ((*source.shape[:-1], rows[0]) if last == "Linear" else (*source.shape, rows[1])), dtype
    if last in ("RNNCell", "LSTMCell", "GRUCell"):
        hidden = module.params["weight_hh"].shape
        return (*source.shape[:-1], hidden[1]) if source.shape and hidden else None, source.dtype
    if is_kind(last, "loss-functions"):
        return () if module.attrs.get("reduction", "mean") in ("mean", "sum") else None, source.dtype
    if last == "Flatten":
        return tensors.flattened(source.shape, 1), source.dtype
    return source.shape if is_kind(last, "layers-that-keep-shape") else None, source.dtype


def _opaque(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The output of a module whose forward is not known: it depends on all that goes in and all that it holds."""
    params = [p for _, p in module.named_parameters()]
    return Tensor(None, None, tensors.dependencies(it, *args, *kwargs.values(), *params), True)
