"""What the lowering keeps of module objects: what is inside what, which have parameters, and whose parameters a value holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.values import RANK, Alt, Bound, Const, Expr, Items, Obj, Value, options

Key = tuple[Any, ...]


@dataclass(slots=True)
class Modules:
    """The module objects of a program by key, the modules inside each, and the wrapper of each wrapped one."""

    objects: dict[Key, Obj] = field(default_factory=dict)
    children: dict[Key, set[Key]] = field(default_factory=dict)
    wrapped: dict[Key, Obj] = field(default_factory=dict)
    wrappers_in: dict[Key, set[Key]] = field(default_factory=dict)  # wrappers that are attributes of a module
    names: dict[Key, str] = field(default_factory=dict)  # the attribute that a module was put into first
    arguments: dict[Key, tuple[Value, ...]] = field(default_factory=dict)  # what a module was made with

    def name(self, module: Obj) -> str:
        """How the model calls a module inside it: its attribute, else what it was made by."""
        return self.names.get(module.key) or module.text

    def note_wrapper(self, owner: Key, value: Value) -> None:
        """Notes that a wrapper is an attribute of an object."""
        wrappers = {o.key for o in options(value) if isinstance(o, Obj) and o.kind == "ddp"}
        self.wrappers_in.setdefault(owner, set()).update(wrappers)

    def layer(self, container: Obj | None, index: Value) -> Obj | None:
        """What stands at a known place of a Sequential, ModuleList or ModuleDict that was made of things that are known."""
        if container is None or not isinstance(index, Const) or not isinstance(container.cls, str):
            return None
        made = list(self.arguments.get(container.key, ()))
        held = made[0] if len(made) == 1 and isinstance(made[0], Items) and not made[0].many else None
        found: Value | None = None
        if container.cls.endswith(".ModuleDict"):
            pairs = [] if held is None or held.keys is None else list(zip(held.keys, held.items, strict=True))
            found = next((value for key, value in pairs if isinstance(key, Const) and key.value == index.value), None)
        elif container.cls.endswith((".Sequential", ".ModuleList")) and isinstance(index.value, int):
            made = made if held is None or held.keys is not None else list(held.items)
            found = made[index.value] if -len(made) <= index.value < len(made) else None
        return found if isinstance(found, Obj) and found.kind in ("module", "ddp") else None

    def made_by_rank(self, key: Key) -> bool:
        """Whether a module was made with the rank or the world size, so that each rank may have its own part of it."""
        own = any(_names_rank(value) for value in self.arguments.get(key, ()))
        return own or any(
            _names_rank(value) or RANK in value.taint  # as many rows as the rank has classes
            for inner in self.inside(key)
            if inner[0] == "torch.nn.Parameter"
            for value in self.arguments.get(inner, ())
        )

    def inside(self, key: Key) -> set[Key]:
        """The keys of a module and of all modules inside it."""
        found, queue = {key}, [key]
        while queue:
            for child in self.children.get(queue.pop(), ()):
                if child not in found:
                    found.add(child)
                    queue.append(child)
        return found

    def wrapper_around(self, key: Key) -> Obj | None:
        """The wrapper that a module stands in, itself or inside another module."""
        direct = self.wrapped.get(key)
        if direct is not None:
            return direct
        for inner, wrapper in self.wrapped.items():
            if key in self.inside(inner):
                return wrapper
        return None

    def has_parameters(self, key: Key) -> bool | None:
        """Whether a module has parameters of its own or in a module inside it; None where that is not known."""
        answers = [self._own(inner) for inner in self.inside(key)]
        if True in answers:
            return True
        return None if None in answers else False

    def _own(self, key: Key) -> bool | None:
        module = self.objects.get(key)
        if module is None:
            return None
        if not isinstance(module.cls, str):
            return False  # a class of the project: its parameters are children
        if module.cls.startswith("torch.nn."):
            return is_kind(module.cls, "layers-with-parameters")
        return True if module.cls.startswith(("torchvision.", "timm.")) else None


def _names_rank(value: Value) -> bool:
    if isinstance(value, Expr):
        return value.op in ("rank", "world_size") or any(_names_rank(arg) for arg in value.args)
    return isinstance(value, Items) and any(_names_rank(item) for item in value.items)


def module_of(value: Value | None) -> Obj | None:
    """The module whose parameter, attribute or method a value is: of `net.fc.weight.data` the layer `fc`, where it is known."""
    while value is not None:
        for option in options(value):
            if isinstance(option, Obj) and option.kind in ("module", "ddp"):
                return option
            if isinstance(option, Obj) and option.kind in ("parameters", "parameter"):
                return module_of(option.info)
        value = next((o.receiver for o in options(value) if isinstance(o, Bound)), None)
    return None


def attribute_path(value: Value | None) -> tuple[str, ...]:
    """The attributes between a module and a value, outermost first: of `net.fc.weight.data` weight and data."""
    names: list[str] = []
    while value is not None:
        bound = next((o for o in options(value) if isinstance(o, Bound)), None)
        if bound is not None:
            names.append(bound.name)
        value = None if bound is None else bound.receiver
    return tuple(reversed(names))


def unwrapped(module: Obj) -> Obj | None:
    """The module inside a wrapper, or the module itself; None where what is wrapped is not known."""
    if module.kind != "ddp":
        return module
    return next((o for o in options(module.info) if isinstance(o, Obj)), None) if isinstance(module.info, Value) else None


@dataclass(frozen=True, slots=True)
class Owner:
    """A module whose parameters a value holds; `part` says that it may hold only some of them."""

    module: Obj
    part: bool


def owners_of(value: Value | None) -> tuple[list[Owner], bool]:
    """The modules whose parameters a value holds, and whether these are known to be all of them."""
    found = list(_owners(value)) if value is not None else [None]
    return [owner for owner in found if owner is not None], None not in found


def _owners(value: Value) -> Iterator[Owner | None]:
    match value:
        case Items(items=items):
            for item in items:
                if isinstance(item, (Items, Alt, Obj)) or value.keys is None:
                    yield from _owners(item)
        case Alt(options=alternatives):
            for alternative in alternatives:
                yield from _owners(alternative)
        case Obj(kind="parameters" | "parameter", info=Value() as owner):
            module = module_of(owner)
            yield None if module is None else Owner(module, value.cls == "part")
        case Obj(kind="module", cls="torch.nn.Parameter"):
            yield Owner(value, False)
        case _:
            yield None
