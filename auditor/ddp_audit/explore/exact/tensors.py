"""Tensors of an interpreted run: how they are made, what their methods give, which shapes are known.

A shape that is not known is None, never a guess. What a tensor was computed from is never lost but by `detach` and its like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import hooks, layers, named, parts, totals, training
from ddp_audit.explore.exact.acting import may_act
from ddp_audit.explore.exact.contents import dtype_of, is_unknown, tensors_in
from ddp_audit.explore.exact.values import Lib, Native, Param, Tensor, Unknown, Use
from ddp_audit.knowledge.tensors import JOINS, LOSSES, OF_ELEMENTS, OF_SIZES, REDUCTIONS, SAME_SHAPE, TYPES
from ddp_audit.machine.graph import next_number, ready_together

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_JOINS = JOINS - {"hstack", "vstack"}  # those along a dimension that is given
_USES_A_TICK = 500  # uses of parameters that are carried on at the price of a statement
_APART = frozenset({"linear", "bilinear", "instance_norm"})  # functions whose parameters are not inputs of one node


def like(it: Interpreter, source: Tensor, *others: Any, dtype: str | None = None, shape: Any = "same") -> Tensor:
    """A tensor computed from others."""
    deps = dependencies(it, source, *others)
    local = any(t.local for t in tensors_in([source, *others])) or any(isinstance(o, Unknown) and o.local for o in others)
    return Tensor(source.shape if shape == "same" else shape, dtype or source.dtype, deps, local)


def dependencies(it: Interpreter, *values: Any) -> frozenset[Any]:
    """What a result depends on: nothing where gradients are off; a parameter that is frozen does not count."""
    if not it.grad:
        return frozenset()
    found: set[Any] = set()
    own: dict[Param, None] = {}
    for tensor in tensors_in(list(values)):
        if not isinstance(tensor, Param):
            found |= tensor.deps
        elif tensor.requires_grad:
            own[tensor] = None
    it.ticks += len(found) // _USES_A_TICK  # a deep network holds each of them again in each layer
    return frozenset(found | uses(it, [list(own)], bool(found)) if own else found)


def uses(it: Interpreter, nodes: Iterable[Sequence[Param]], live: bool) -> set[Any]:
    """Uses of parameters by nodes of the graph, given in the order in which they are made, each with its parameters in order.

    `live` says whether the nodes have another input that requires a gradient. Torch knows how many nodes wait in its engine, and
    this does not, which may matter for nodes of three parameters and more.
    """
    found: set[Any] = set()
    for params in nodes:
        trained = [p for p in params if p.requires_grad]
        # What is used last is ready first.
        made = [Use(trained[place], next_number()) for place in reversed(ready_together(len(trained), int(live)))]
        found.update(made)
        it.used += made
    return found


def oldest(deps: Iterable[Any]) -> dict[Param, int]:
    """The parameters among what a tensor was computed from, each with the number of its oldest use."""
    found: dict[Param, int] = {}
    for dep in deps:
        if isinstance(dep, Use):
            found[dep.param] = min(dep.number, found.get(dep.param, dep.number))
    return found


def again(it: Interpreter, value: Any, used: Sequence[Use]) -> Any:
    """The value of a forward that is not run again, with tensors of its own, computed from uses that happen now."""
    new = {use: Use(use.param, next_number()) for use in sorted(used, key=lambda use: use.number)}
    it.used += new.values()
    made = fresh(value)
    for tensor in tensors_in(made):
        if not isinstance(tensor, Param):
            tensor.deps = frozenset(new.get(dep, dep) for dep in tensor.deps)
    return made


def fresh(value: Any) -> Any:
    """The value with tensors of its own, so that what happens to one is not seen in the other."""
    match value:
        case Param():
            return value
        case Tensor():
            return Tensor(value.shape, value.dtype, value.deps, value.local)
        case named.Record():
            return named.Record.of([fresh(part) for part in value], value.names, value.cls)
        case tuple() | list():
            return type(value)([fresh(part) for part in value])
        case dict():
            return {key: fresh(part) for key, part in value.items()}
    return value


def elementwise(it: Interpreter, left: Any, right: Any, *, divides: bool = False) -> Tensor:
    """An operator on two values, one of which is a tensor at least; the quotient of numbers without a point is one with."""
    sides = [v for v in (left, right) if isinstance(v, Tensor)]
    first = sides[0]
    shape = first.shape
    if len(sides) == 2:
        shape = _broadcast(left.shape, right.shape)
    floats = [t.dtype for t in sides if t.dtype is not None and "float" in t.dtype]
    dtype = floats[0] if floats else first.dtype
    is_number = not any(t.dtype is None or "complex" in t.dtype for t in sides)
    if is_number and not floats and (divides or isinstance(left, float) or isinstance(right, float)):
        dtype = "float32"
    return like(it, first, left, right, dtype=dtype, shape=shape)


def compared(left: Any, right: Any) -> Tensor:
    """A comparison in which one side is a tensor."""
    sides = [v for v in (left, right) if isinstance(v, Tensor)]
    shape = _broadcast(left.shape, right.shape) if len(sides) == 2 else sides[0].shape
    return Tensor(shape, "bool", frozenset(), any(t.local for t in sides))


def _broadcast(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if a is None or b is None:
        return None
    width = max(len(a), len(b))
    pairs = zip((1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b, strict=True)
    return tuple(max(x, y) if x and y else 0 for x, y in pairs)


def index(it: Interpreter, tensor: Tensor, at: Any) -> Tensor:
    """`tensor[at]`; the shape is known for whole numbers, plain slices, None and an ellipsis."""
    shape = tensor.shape
    result: tuple[int, ...] | None = None
    if shape is not None and not is_unknown(at):
        kept: list[int] = []
        parts = list(at) if isinstance(at, tuple) else [at]
        sizes = list(shape)
        if parts.count(...) == 1:
            left = len(sizes) - sum(part is not None and part is not ... for part in parts)
            place = parts.index(...)
            parts[place : place + 1] = [slice(None)] * max(left, 0)
        taken = [part for part in parts if part is not None]
        if len(taken) <= len(sizes) and all(type(part) in (int, slice) for part in taken):
            for part in parts:
                size = 1 if part is None else sizes.pop(0)
                if not isinstance(part, int):
                    kept.append(size if part is None else len(range(*part.indices(size))))
            result = (*kept, *sizes)
    return like(it, tensor, at, shape=result)


def rows(it: Interpreter, tensor: Tensor, count: int | None = None) -> list[Tensor]:
    """The parts along the first dimension: as many as there are, or `count` where that is not known."""
    if tensor.shape:
        return [like(it, tensor, shape=tensor.shape[1:]) for _ in range(tensor.shape[0])]
    return [like(it, tensor, shape=None) for _ in range(count or 0)]


def written(tensor: Tensor, value: Any) -> None:
    """`tensor[..] = value`, or an operation in place."""
    for other in tensors_in([value]):
        tensor.deps |= other.deps
        tensor.local = tensor.local or other.local
    if isinstance(value, Unknown) and value.local:
        tensor.local = True


def size_of(args: list[Any]) -> tuple[int, ...] | None:
    """A shape given as numbers or as one sequence of them."""
    given = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    return tuple(given) if all(isinstance(n, int) for n in given) else None


# ---- functions of torch


def create(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """`torch.<name>(..)` where it makes a tensor from sizes or data; None where it is another function."""
    dtype = dtype_of(kwargs.get("dtype"))
    sizes = [kwargs["size"]] if "size" in kwargs else args
    if name in OF_SIZES and name != "full":
        return Tensor(size_of(sizes), dtype or "float32", frozenset(), name.startswith("rand"))
    if name.endswith("_like") and args and isinstance(args[0], Tensor):
        source = args[0]
        return Tensor(source.shape, dtype or source.dtype, frozenset(), name.startswith("rand"))
    if name == "full":
        value = args[1] if len(args) > 1 else kwargs.get("fill_value")
        return Tensor(size_of([args[0]]) if args else None, dtype or _of_number(value), frozenset(), _local(value))
    if name in ("randint", "randperm", "arange", "eye", "linspace"):
        return _sequence(name, args, kwargs, dtype)
    if name in OF_ELEMENTS:
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, Tensor):
            return Tensor(data.shape, dtype or data.dtype, frozenset(), data.local)
        return Tensor(_shape_of(data), dtype or _of_data(data), frozenset(), _local(data))
    if name == "stack" and args and isinstance(args[0], (list, tuple)) and args[0] and isinstance(args[0][0], Tensor):
        first = args[0][0]
        along = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        shape = (len(args[0]), *first.shape) if first.shape is not None and along == 0 else None
        return like(it, first, *args[0], shape=shape)
    if (
        name in JOINS
        and name not in ("hstack", "vstack")
        and args
        and isinstance(args[0], (list, tuple))
        and args[0]
        and isinstance(args[0][0], Tensor)
    ):
        return like(it, args[0][0], *args[0], shape=_joined(args[0], kwargs.get("dim", args[1] if len(args) > 1 else 0)))
    return None


def function(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """Any other function of torch on tensors, by its last name."""
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
    everything = [*args, *kwargs.values()]
    if not tensors:
        inner = next(tensors_in(everything), None)
        if inner is None:
            return Tensor(None, None, frozenset(), True)
        return like(it, inner, *everything, shape=None)
    first = tensors[0]
    if name in _APART and it.grad:
        # Each parameter goes through a node of its own.
        others = [t for t in everything if not isinstance(t, Param)]
        own = uses(it, [[t] for t in everything if isinstance(t, Param)], bool(dependencies(it, *others)))
        result = _function(it, name, args, kwargs, everything, first)
        result.deps = frozenset(own | dependencies(it, *others))
        return result
    return _function(it, name, args, kwargs, everything, first)


def _function(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any], everything: list[Any], first: Tensor) -> Tensor:
    tensors = [t for t in everything if isinstance(t, Tensor)]
    if name in LOSSES:
        reduced = kwargs.get("reduction", "mean")
        return like(it, first, *everything, shape=() if reduced in ("mean", "sum") else None)
    if name == "where" and len(args) > 2:
        shape = first.shape
        for other in tensors[1:]:
            shape = _broadcast(shape, other.shape)
        chosen = next((value.dtype for value in args[1:3] if isinstance(value, Tensor)), _of_number(args[1]))
        return like(it, first, *everything, shape=shape, dtype=chosen)
    if name == "linear" and len(args) > 1 and isinstance(args[1], Tensor) and args[1].shape and first.shape:
        return like(it, first, *everything, shape=(*first.shape[:-1], args[1].shape[0]))
    if name in ("matmul", "bmm", "mm") and len(tensors) > 1:
        return like(it, first, *everything, shape=_product(first.shape, tensors[1].shape))
    return _method(it, first, name, args[1:], kwargs, everything)


def _method(it: Interpreter, tensor: Tensor, name: str, args: list[Any], kwargs: dict[str, Any], everything: list[Any]) -> Tensor:
    if name in SAME_SHAPE:
        others = [a for a in args if isinstance(a, Tensor)]
        shape = tensor.shape
        for other in others:
            shape = _broadcast(shape, other.shape)
        return like(it, tensor, *everything, shape=shape)
    if name in REDUCTIONS:
        return like(it, tensor, *everything, shape=_reduced(tensor, args, kwargs), dtype=_reduced_type(name, tensor))
    if name in ("view", "reshape") and (args or "shape" in kwargs):
        return like(it, tensor, shape=_viewed(tensor, [kwargs["shape"]] if "shape" in kwargs else args))
    if name == "flatten":
        ends = [kwargs.get("start_dim", args[0] if args else 0), kwargs.get("end_dim", args[1] if len(args) > 1 else -1)]
        known = all(isinstance(end, int) for end in ends)
        return like(it, tensor, shape=flattened(tensor.shape, *ends) if known else None)
    if name == "unsqueeze" and tensor.shape is not None and args and isinstance(args[0], int):
        at = args[0] % (len(tensor.shape) + 1)
        return like(it, tensor, shape=(*tensor.shape[:at], 1, *tensor.shape[at:]))
    if name in ("transpose", "swapaxes") and tensor.shape is not None and len(args) == 2 and not is_unknown(args):
        moved = list(tensor.shape)
        moved[args[0]], moved[args[1]] = moved[args[1]], moved[args[0]]
        return like(it, tensor, shape=tuple(moved))
    if name == "t" and tensor.shape is not None:
        return like(it, tensor, shape=tensor.shape[::-1])
    return like(it, tensor, *everything, shape=None)


def attribute(it: Interpreter, tensor: Tensor, name: str) -> Any:
    """An attribute or a method of a tensor."""

    match name:
        case "shape":
            return tensor.shape if tensor.shape is not None else Unknown("a shape")
        case "dtype":
            return Lib(f"torch.{tensor.dtype}") if tensor.dtype else Unknown("a dtype")
        case "device" | "layout":
            return Unknown(name)
        case "data":
            return totals.shared(tensor, Tensor(tensor.shape, tensor.dtype, frozenset(), tensor.local))
        case "grad":
            return tensor.grad if isinstance(tensor, Param) and tensor.grad is not None else _gradient_of(tensor)
        case "requires_grad":
            return tensor.requires_grad if isinstance(tensor, Param) else bool(tensor.deps)
        case "ndim":
            return len(tensor.shape) if tensor.shape is not None else Unknown("ndim")
        case "T" | "mT":
            return like(it, tensor, shape=None if tensor.shape is None else tensor.shape[::-1])
        case "backward":
            return Native(lambda *a, **k: training.backward(it, [tensor], bool(k.get("retain_graph"))))
        case "item" | "tolist" | "numpy":
            return Native(lambda *a, **k: totals.copied(tensor, Unknown("a value", tensor.local)))
        case "size":
            return Native(lambda *a, **k: _size(tensor, a, k))
        case "dim":
            return Native(lambda: len(tensor.shape) if tensor.shape is not None else Unknown("dim"))
        case "numel" | "nelement":
            return Native(lambda: tensor.numel if tensor.numel is not None else Unknown("numel"))
        case "element_size":
            return Native(lambda: Unknown("element_size"))
        case "detach" | "detach_" | "clone":
            return Native(lambda *a, **k: _copied(it, tensor, name))
        case "requires_grad_":
            return Native(lambda flag=True: layers.frozen(it, tensor, flag))
        case "to" | "type" | "cpu" | "cuda":
            return Native(lambda *a, **k: _moved(it, tensor, a, k))
        case "float" | "double" | "half" | "long" | "int" | "bool" | "bfloat16" | "byte":
            return Native(lambda *a, **k: totals.copied(tensor, like(it, tensor, dtype=TYPES[name])))
        case "split" | "chunk" | "unbind":
            return Native(lambda *a, **k: parts.of(it, tensor, name, list(a), k))
        case "is_cuda":
            return False
        case "is_floating_point" | "is_complex":
            kind = "float" if name == "is_floating_point" else "complex"
            return Native(lambda: Unknown(name) if tensor.dtype is None else kind in tensor.dtype)
        case "register_hook" if not isinstance(tensor, Param):
            return Native(lambda hook: hooks.on_tensor(it, tensor, hook))
        case "retain_grad" | "record_stream":
            return Native(lambda *a, **k: None)
        case "register_hook" | "register_post_accumulate_grad_hook":
            return Native(lambda *a, **k: hooked(it, a))

    def method(*args: Any, **kwargs: Any) -> Any:
        if name.endswith("_") and not name.endswith("__"):
            written(tensor, [*args, *kwargs.values()]) if it.grad and not isinstance(tensor, Param) else None
            totals.changed(it, name, tensor, args)
            return tensor
        if name.startswith("new_"):
            return totals.made_by(name, args, create(it, name[4:], list(args), kwargs) or Tensor(None, tensor.dtype))
        made = _method(it, tensor, name, list(args), kwargs, [tensor, *args, *kwargs.values()])
        return totals.made_by(name, tensor, made)

    return Native(method, name)


def hooked(it: Interpreter, given: tuple[Any, ...]) -> None:
    """A hook is registered: what it does when it runs is not followed."""
    if any(may_act(function) for function in given):
        it.opaque("a hook")


def _gradient_of(tensor: Tensor) -> Tensor:
    return Tensor(tensor.shape, tensor.dtype, frozenset(), True)


def _copied(it: Interpreter, tensor: Tensor, name: str) -> Tensor:
    deps = dependencies(it, tensor) if name == "clone" else frozenset()
    made = Tensor(tensor.shape, tensor.dtype, deps, tensor.local)
    return totals.copied(tensor, made) if name == "clone" else totals.shared(tensor, made)


def _moved(it: Interpreter, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    dtype = next((d for d in map(dtype_of, (*args, *kwargs.values())) if d), None)
    other = next((a for a in args if isinstance(a, Tensor)), None)
    if dtype is None and other is None and not isinstance(tensor, Param):
        return totals.copied(tensor, Tensor(tensor.shape, tensor.dtype, tensor.deps, tensor.local))  # on a GPU it is a copy
    return totals.copied(tensor, like(it, tensor, dtype=dtype or (other.dtype if other is not None else None)))


def _size(tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    at = args[0] if args else kwargs.get("dim")
    if tensor.shape is None:
        return Unknown("a size")
    if at is None:
        return tensor.shape
    return tensor.shape[at] if isinstance(at, int) and -len(tensor.shape) <= at < len(tensor.shape) else Unknown("a size")


def _reduced(tensor: Tensor, args: list[Any], kwargs: dict[str, Any]) -> tuple[int, ...] | None:
    dim = kwargs.get("dim", kwargs.get("axis", args[0] if args else None))
    if dim is None:
        return ()
    if tensor.shape is None or not isinstance(dim, int) or not tensor.shape:
        return None
    at = dim % len(tensor.shape)
    kept = (1,) if kwargs.get("keepdim") is True else ()
    return (*tensor.shape[:at], *kept, *tensor.shape[at + 1 :])


def _reduced_type(name: str, tensor: Tensor) -> str | None:
    if name in ("all", "any"):
        return "bool"
    if name in ("argmax", "argmin") or (name in ("sum", "prod") and tensor.dtype is not None and "float" not in tensor.dtype):
        return "int64"
    return tensor.dtype


def _viewed(tensor: Tensor, args: list[Any]) -> tuple[int, ...] | None:
    wanted = size_of(args)
    if wanted is None or -1 not in wanted:
        return wanted
    rest = math.prod(n for n in wanted if n != -1)
    if tensor.numel is None or not rest:
        return None
    return tuple(tensor.numel // rest if n == -1 else n for n in wanted)


def flattened(shape: tuple[int, ...] | None, start: int = 0, end: int = -1) -> tuple[int, ...] | None:
    if not shape:
        return shape
    first, last = start % len(shape), end % len(shape)
    return (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def _product(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if not a or not b or len(b) < 2:
        return None
    if len(b) == 2 or len(a) == 1:
        return (*b[:-2], *a[:-1], b[-1])
    batch = _broadcast(a[:-2], b[:-2])
    return None if batch is None else (*batch, a[-2], b[-1])


def _joined(parts: Any, dim: Any) -> tuple[int, ...] | None:
    shapes = [t.shape for t in parts if isinstance(t, Tensor) and t.shape]
    if len(shapes) != len(parts) or not isinstance(dim, int):
        return None
    first = shapes[0]
    at = dim % len(first)
    return (*first[:at], sum(s[at] for s in shapes), *first[at + 1 :])


def _sequence(name: str, args: list[Any], kwargs: dict[str, Any], dtype: str | None) -> Tensor:
    if name == "randint":
        size = kwargs.get("size", args[-1] if args else None)
        return Tensor(size_of([size]) if isinstance(size, (list, tuple)) else None, dtype or "int64", frozenset(), True)
    if name == "randperm":
        return Tensor(size_of(args[:1]), dtype or "int64", frozenset(), True)
    if name == "eye":
        sides = args[:2] if len(args) > 1 else args[:1] * 2
        return Tensor(size_of(sides), dtype or "float32", frozenset(), False)
    if name == "linspace":
        return Tensor(size_of(args[2:3]) if len(args) > 2 else None, dtype or "float32", frozenset(), False)
    bounds = args or [kwargs[n] for n in ("start", "end", "step") if n in kwargs]
    if not bounds or not all(isinstance(n, (int, float)) and math.isfinite(n) for n in bounds):
        return Tensor(None, dtype or "int64", frozenset(), False)
    start, end, step = (*bounds, 1) if len(bounds) == 2 else (0, bounds[0], 1) if len(bounds) == 1 else bounds[:3]
    size = max(0, math.ceil((end - start) / step)) if step else None
    kind = "int64" if all(isinstance(n, int) for n in bounds) else "float32"
    return Tensor(None if size is None else (size,), dtype or kind, frozenset(), False)


def _shape_of(data: Any) -> tuple[int, ...] | None:
    if isinstance(data, (int, float, bool)):
        return ()
    if isinstance(data, Unknown):
        return () if data.why in ("a value", "a length", "a size", "a number") else None
    if isinstance(data, (list, tuple)):
        inner = _shape_of(data[0]) if data else ()
        return None if inner is None else (len(data), *inner)
    return data.shape if isinstance(data, Tensor) else None


def _of_number(value: Any) -> str | None:
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) else "float32" if isinstance(value, float) else None


def _of_data(data: Any) -> str | None:
    if isinstance(data, (list, tuple)):
        kinds = {_of_data(item) for item in data[:64]} if data else {"float32"}
        return "float32" if "float32" in kinds else kinds.pop() if len(kinds) == 1 else None
    if isinstance(data, Tensor):
        return data.dtype
    return _of_number(data)


def _local(data: Any) -> bool:
    if isinstance(data, (Unknown, Tensor)):
        return data.local
    return isinstance(data, (list, tuple)) and any(_local(item) for item in data[:64])
