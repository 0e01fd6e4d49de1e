"""Values of an interpreted run other than Python's own: unknowns, names of libraries, tensors, modules, classes and functions."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddp_audit.lineage import lineage

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter
    from ddp_audit.source.files import SourceFile

_OTHER_EXCEPTIONS = {"OutOfMemoryError": RuntimeError, "JSONDecodeError": ValueError}  # of libraries, by what they are of Python's
BREAK, CONTINUE, RETURN = "break", "continue", "return"
SPREAD = "**"  # as the name of an argument: more arguments are given, and which ones is not known
PLAIN = (int, float, str, bytes, bool, type(None), complex)


@dataclass(slots=True, eq=False)
class Unknown:
    """A value that is not known. `local` says that it may differ between ranks, `truth` how it was taken as a condition.

    `quiet` says that it comes from a library that sends nothing, so that a call of it, or of a method of it, sends nothing either.
    `source` is the first unknown that it was computed from, None where it is that itself.
    """

    why: str = ""
    local: bool = False
    truth: bool | None = None
    quiet: bool = False
    total: Any = None  # the sum over the ranks that it holds (totals.Total)
    source: Unknown | None = None


@dataclass(slots=True, eq=False)
class Opened(Unknown):
    """A file of the machine that was opened to read; what is read of it is not known, but for plain values in a pickle."""

    path: str = ""


class View(list[Any]):
    """The keys or pairs of a dict, which compare as sets do."""


@dataclass(slots=True, eq=False)
class Several(Unknown):
    """A list of which is not known how many elements it has. `element` is one of them, and stands for all."""

    element: Any = None


@dataclass(frozen=True, slots=True)
class Lib:
    """A thing of a library by its full name, `torch.distributed.all_reduce`."""

    name: str


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor: its shape and dtype where known, and what it was computed from (`Use`, `Output`)."""

    shape: tuple[int, ...] | None = None
    dtype: str | None = "float32"
    deps: frozenset[Any] = frozenset()
    local: bool = True
    holder: Any = None  # of a sum over the ranks, shared by tensors with the same elements (totals.Holder)

    @property
    def numel(self) -> int | None:
        """Number of elements, None where the shape is not known."""
        return None if self.shape is None else math.prod(self.shape)

    def set_attribute(self, it: Interpreter, name: str, value: Any) -> None:
        """`tensor.name = value`: with other `data` it has other elements."""
        if name == "data":
            self.holder = None


@dataclass(slots=True, eq=False)
class Param(Tensor):
    """A torch.nn.Parameter."""

    requires_grad: bool = True
    grad: Any = None
    device: str | None = None  # its kind, where known

    def __post_init__(self) -> None:
        self.local = False


@dataclass(frozen=True, slots=True)
class Use:
    """A parameter that a tensor was computed from. `number` is that of the use (see `machine.graph`)."""

    param: Param
    number: int


@dataclass(slots=True, eq=False)
class Module:
    """A torch.nn.Module: what it registered, in order. `cls` is a class of the project or a library's full name.

    `opaque` says that it holds parameters (and perhaps buffers) that are not known.
    """

    cls: Any
    params: dict[str, Param] = field(default_factory=dict)
    buffers: dict[str, Any] = field(default_factory=dict)
    children: dict[str, Module] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    opaque: bool = False
    opaque_buffers: bool = False
    training: bool = True
    before: list[Any] = field(default_factory=list)  # hooks around its forwards (layers.Hook)
    after: list[Any] = field(default_factory=list)

    @property
    def layer(self) -> str:
        """The last name of a class of a library, empty for one of the project."""
        return self.cls.rsplit(".", 1)[-1] if isinstance(self.cls, str) else ""

    @property
    def held(self) -> dict[str, Any] | None:
        """What a container of torch holds by name, modules or parameters; None where the module is not a container."""
        names = self.cls.outside_bases() if isinstance(self.cls, Class) else {self.cls} if isinstance(self.cls, str) else set()
        kinds = {name.rsplit(".", 1)[-1] for name in names}
        if kinds & {"Sequential", "ModuleList", "ModuleDict"}:
            return self.children
        return self.params if kinds & {"ParameterList", "ParameterDict"} else None

    def own_children(self) -> list[tuple[str, Module]]:
        """The modules right inside with their names, each once."""
        return list({id(child): (name, child) for name, child in reversed(self.children.items())}.values())[::-1]

    def walk(self) -> Iterator[tuple[str, Module]]:
        """This module and those inside it with their dotted names, each once, in order of registration."""
        seen: set[int] = set()

        def visit(prefix: str, module: Module) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield prefix, module
            for name, child in module.children.items():
                yield from visit(f"{prefix}.{name}" if prefix else name, child)

        yield from visit("", self)

    def named_parameters(self) -> list[tuple[str, Param]]:
        """Parameters in torch's order, shared ones once."""
        seen: dict[int, tuple[str, Param]] = {}
        for prefix, module in self.walk():
            for name, param in module.params.items():
                seen.setdefault(id(param), (f"{prefix}.{name}" if prefix else name, param))
        return list(seen.values())

    def named_buffers(self) -> list[tuple[str, Tensor]]:
        """Buffers in torch's order, those that are None left out."""
        seen: dict[int, tuple[str, Tensor]] = {}
        for prefix, module in self.walk():
            for name, buffer in module.buffers.items():
                if isinstance(buffer, Tensor):
                    seen.setdefault(id(buffer), (f"{prefix}.{name}" if prefix else name, buffer))
        return list(seen.values())


@dataclass(slots=True, eq=False)
class Class:
    """A class of the project, or of a library (then `lib` is its name)."""

    name: str
    bases: list[Any]
    namespace: dict[str, Any]
    source: SourceFile
    fields: list[tuple[str, ast.expr | None]] | None = None  # of a dataclass
    scope: Any = None
    annotated: list[tuple[str, ast.expr | None]] = field(default_factory=list)  # names with a type in its body, and their values
    members: dict[str, Any] = field(default_factory=dict)  # of an enumeration, by name
    ordered: list[Class] | None = None  # its lineage, once it was asked for

    def find(self, name: str) -> Any:
        """An attribute, here or in a base of the project; MISSING without one."""
        if name in self.namespace:
            return self.namespace[name]
        return next((cls.namespace[name] for cls in self.lineage() if name in cls.namespace), MISSING)

    def lineage(self) -> list[Class]:
        """The class and its bases of the project, in the order in which they are asked for an attribute."""
        if self.ordered is None:
            self.ordered = lineage(self, lambda cls: [base for base in cls.bases if isinstance(base, Class)])
        return self.ordered

    def outside_bases(self) -> set[str]:
        """Full names of the library classes that it descends from."""
        return {base.name for cls in self.lineage() for base in cls.bases if isinstance(base, Lib)}

    @property
    def is_module(self) -> bool:
        return any(name.startswith("torch.nn.") for name in self.outside_bases())


@dataclass(slots=True, eq=False)
class Instance:
    """An object of a project class that is not a module."""

    cls: Class
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Scope:
    """Variables of a module, a function call or a class body."""

    variables: dict[str, Any]
    source: SourceFile
    parent: Scope | None = None
    name: str = "<module>"
    outer: set[str] = field(default_factory=set)  # declared global
    enclosing: set[str] = field(default_factory=set)  # declared nonlocal
    receiver: Any = None
    owner: Class | None = None
    yielded: Callable[[Any], Any] | None = None
    is_class: bool = False

    @property
    def module(self) -> Scope:
        """The scope of the file."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(slots=True, eq=False)
class Function:
    """A function of the project. `wrappers` are decorators with an effect: gradient modes."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    name: str
    owner: Class | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    kind: str = ""  # property, staticmethod, classmethod, contextmanager
    grad: bool | None = None
    generator: bool = False
    kept: dict[Any, Any] | None = None  # what a memoised function returned, by its arguments


@dataclass(slots=True, eq=False)
class Method:
    """A function of the project bound to its receiver."""

    function: Function
    receiver: Any


@dataclass(slots=True, eq=False)
class Generating:
    """A call of a generator function that has not run yet."""

    function: Function
    args: list[Any]
    kwargs: dict[str, Any]
    receiver: Any = None
    running: Any = None  # generators.Running, where it was asked for single elements
    sent: Any = None  # what its `yield` gives next


@dataclass(slots=True, eq=False)
class Stream:
    """An iterator: `iter(x)`. `drawn` counts how often it was asked."""

    source: Iterator[Any]
    name: str = ""
    drawn: int = 0

    def rest(self, it: Interpreter) -> Iterator[Any]:
        """What is left of it."""
        for element in self.source:
            self.drawn += 1
            yield element
        self.drawn += 1

    def next(self, fallback: Callable[[], Any]) -> Any:
        """The next element, or what `fallback` gives at the end."""
        self.drawn += 1
        for element in self.source:
            return element
        return fallback()


@dataclass(slots=True, eq=False)
class Native:
    """A callable that the interpreter brings: called with positional and keyword arguments. `inner` is what it calls in turn."""

    call: Callable[..., Any]
    name: str = ""
    inner: Any = None


@dataclass(slots=True, eq=False)
class Context:
    """A context manager of a library: `grad` sets the gradient mode, `enter` and `leave` run around the block."""

    grad: bool | None = None
    value: Any = None
    enter: Callable[[], Any] | None = None
    leave: Callable[[], Any] | None = None
    suppressed: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class Error:
    """An exception of Python or of a library."""

    name: str
    args: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """What it says."""
        return " ".join(str(a) for a in self.args if isinstance(a, PLAIN))


@dataclass(slots=True, eq=False)
class Output:
    """What one forward of a wrapper, or of its module, gives: the handle of the machine."""

    wrapper: Any
    handle: Any


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


class Raised(Exception):
    """An exception of the interpreted program. `value` is an Error or an Instance.

    `inferred` says that no `raise` or `assert` of the program made it: the interpreter, or its model of a library, concluded that
    the real call would raise. That conclusion rests on values which may be less exact than the real ones, so it proves nothing.
    """

    def __init__(self, value: Any, *, inferred: bool = False) -> None:
        super().__init__(describe(value))
        self.value = value
        self.inferred = inferred


class Cut(Exception):
    """The run is followed no further. `why` is a whole sentence's end."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Closed(Exception):
    """A generator is left before its end."""


class Gone(Exception):
    """The process ends at once, as `os._exit` ends it: no handler, no `finally` and no function of atexit runs."""

    def __init__(self, code: Any) -> None:
        super().__init__(code)
        self.code = code


def error(name: str, text: str = "") -> Raised:
    """An exception that the interpreter infers, by its name.

    The end of an iterator is not an inference: where its length is not known, the loop over it is noted as bounded.
    """
    return Raised(Error(name, (text,) if text else ()), inferred=name != "StopIteration")


def describe(value: Any) -> str:
    """An exception in a line: `RuntimeError: text`."""
    if isinstance(value, Error):
        return f"{value.name}: {value.text}" if value.text else value.name
    if isinstance(value, Instance):
        said = [str(a) for a in value.attrs.get("args", ()) if isinstance(a, PLAIN)]
        return f"{value.cls.name}: {' '.join(said)}" if said else value.cls.name
    return "an exception"


def matches(value: Any, kind: Any) -> bool:
    """Whether an exception is of a class."""
    if isinstance(value, Instance):
        if isinstance(kind, Class):
            return kind in value.cls.lineage()
        return isinstance(kind, Lib) and any(_is_exception(base, kind.name) for base in value.cls.outside_bases() or ("Exception",))
    return isinstance(value, Error) and isinstance(kind, Lib) and _is_exception(value.name, kind.name)


def _is_exception(name: str, kind: str) -> bool:
    """Whether an exception of Python or of a library is of a kind; one of a library is an Exception if nothing else is known."""
    last, wanted = name.rsplit(".", 1)[-1], kind.rsplit(".", 1)[-1]
    own, other = (getattr(builtins, each, None) for each in (last, wanted))
    own = own if isinstance(own, type) and issubclass(own, BaseException) else _OTHER_EXCEPTIONS.get(last, Exception)
    return last == wanted or (isinstance(other, type) and issubclass(own, other))
