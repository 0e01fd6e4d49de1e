"""The dataclasses of an audit are those of the standard library in all but their cost, and in that what is frozen can be written."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from ddp_audit import records


class Bodies:
    """Classes without their decorator; each test makes them with both."""

    class Point:
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list)
        kind: ClassVar[str] = "point"

        @property
        def total(self) -> int:
            return self.x + self.y

    class Quiet:
        name: str
        hidden: object = dataclasses.field(default=None, repr=False, compare=False)
        made: int = dataclasses.field(init=False, default=7)
        later: str = dataclasses.field(init=False, repr=False)

        def __post_init__(self) -> None:
            self.later = self.name.upper()

    class Empty:
        pass

    class Hashed:
        x: int
        y: int = 0

        def __hash__(self) -> int:
            return 5


def own(body: Any, **options: Any) -> Any:
    """The class made by the auditor's decorator, with its `field` for that of the standard library."""
    names = {name: value for name, value in vars(body).items() if name not in ("__dict__", "__weakref__")}
    for name, value in names.items():
        if isinstance(value, dataclasses.Field):
            keys = ("default", "default_factory", "init", "repr", "compare")
            given = {key: getattr(value, key) for key in keys if getattr(value, key) is not dataclasses.MISSING}
            names[name] = records.field(**given)
    return records.dataclass(slots=True, **options)(type(body.__name__, body.__bases__, names))


def both(body: Any, **options: Any) -> list[Any]:
    copied = type(body.__name__, body.__bases__, {k: v for k, v in vars(body).items() if k not in ("__dict__", "__weakref__")})
    return [own(body, **options), dataclasses.dataclass(slots=True, **options)(copied)]


OPTIONS: list[dict[str, Any]] = [{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_class_does_what_the_standard_one_does(options: dict[str, Any]) -> None:
    outcomes = []
    for cls in both(Bodies.Point, **options):
        one, other, same = cls(1), cls(x=1, y=3, tags=["a"]), cls(1)
        match other:
            case cls(1, y=y):
                matched = y
        outcomes.append(
            (
                *(repr(one), repr(other), one == same, one == other, one != same, one == 3, one.total, cls.kind, matched),
                *(cls.__match_args__, one.tags is same.tags, hasattr(one, "__dict__"), cls.__qualname__, cls.__module__),
                *(cls.__hash__ is None, cls.__hash__ is object.__hash__, cls.__eq__ is object.__eq__),
                repr(dataclasses.replace(other, x=9)),
                [(f.name, f.type, f.init, f.repr, f.compare) for f in dataclasses.fields(cls)],
                dataclasses.asdict(other),
            )
        )
        with pytest.raises(TypeError):
            cls()
        with pytest.raises(TypeError):
            cls(1, unknown=2)
        with pytest.raises(TypeError):
            cls(1, 2, [], 4)
    assert outcomes[0] == outcomes[1]


def test_fields_with_options_and_what_follows_the_making() -> None:
    outcomes = []
    for cls in both(Bodies.Quiet):
        one, other = cls("a", hidden=3), cls("a", hidden=4)
        outcomes.append(
            (repr(one), one == other, one.later, one.made, repr(dataclasses.replace(one, name="b")), cls.__match_args__)
        )
        with pytest.raises(TypeError):
            cls("a", made=3)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2] == "A"


def test_a_class_without_attributes_and_one_with_a_hash_of_its_own() -> None:
    for cls in both(Bodies.Empty, frozen=True):
        assert cls() == cls()
        assert hash(cls()) == hash(cls())
    for cls in both(Bodies.Hashed, frozen=True):
        assert hash(cls(1)) == 5
        assert cls(1) == cls(1) != cls(2)


def test_what_is_frozen_is_hashed_by_value() -> None:
    cls = own(type("Pair", (), {"__annotations__": {"a": "int", "b": "str"}}), frozen=True)
    assert len({cls(1, "x"), cls(1, "x"), cls(2, "x")}) == 2
    with pytest.raises(TypeError):
        hash(own(Bodies.Point)(1))


@records.dataclass(frozen=True, slots=True)
class Base:
    """A class of the module: pickles find it."""

    a: int
    b: int = 2


@records.dataclass(frozen=True, slots=True)
class Derived(Base):
    """One attribute more, and another default."""

    b: int = 3
    c: tuple[Base, ...] = ()


class Plain(Base):
    """No dataclass itself."""

    __slots__ = ()


def test_inheritance() -> None:
    assert repr(Derived(1)) == "Derived(a=1, b=3, c=())"
    assert Derived.__slots__ == ("c",)
    assert Base(1, 3) != Derived(1)
    assert Plain(4) == Plain(4) != Base(4)
    assert Plain(4).b == 2


def test_the_two_kinds_do_not_mix_unseen() -> None:
    standard = dataclasses.make_dataclass("Standard", [("a", int)])
    with pytest.raises(TypeError, match="Standard is a dataclass of the standard library"):
        own(type("Mixed", (standard,), {"__annotations__": {"b": "int"}}))
    with pytest.raises(AttributeError):
        dataclasses.make_dataclass("Other", [("c", int, 5)], bases=(Base,))


def test_copies_and_pickles() -> None:
    one = Derived(1, c=(Base(5),))
    assert pickle.loads(pickle.dumps(one)) == copy.copy(one) == copy.deepcopy(one) == one
    assert records.replace(one, a=2) == Derived(2, c=(Base(5),))
    assert repr(records.replace(Plain(1), b=4)) == "Plain(a=1, b=4)"
    assert records.replace(own(Bodies.Empty)()) is not None
    made = records.replace(own(Bodies.Quiet)("a", hidden=1), name="b")
    assert (made.name, made.hidden, made.later) == ("b", 1, "B")
    with pytest.raises(TypeError):
        records.replace(one, unknown=2)
    assert records.asdict(one) == dataclasses.asdict(one) == {"a": 1, "b": 3, "c": ({"a": 5, "b": 2},)}
