"""Training frameworks: how one is recognised, and answers to fixed questions on what it does for its user.

A file in `frameworks/` describes one framework:

| key | is |
|---|---|
| `name` | its name |
| `library` | true for a library that is not a training framework: it answers no question |
| `packages` | its packages; for each, a name that its `__init__.py` binds, or `/module` in it, by which its source is recognised |
| `imports-with` | words: an import whose name has one of them means this framework too |
| `runs` | names that run a training, or communicate, by themselves; `*Trainer` stands for all that end so |
| `methods` | methods that are collective whatever object they are called on, each with a sentence |
| `functions` | functions that are collective, by their full names, each with a sentence |
| `objects` | kinds of objects: `made-by`, `bases`, `named`, `held-by`, `needs-import`; methods: `collective`, `prepares`, `logs`, |
| | and `if-sharded`: collective where parameters are sharded, and not with plain DDP |
| `does` | the questions of `Answers`: true, `{ if-used = [..] }` or `{ unless-used = [..] }` |
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ddp_audit.knowledge.reading import KnowledgeError, known_keys, parse, tables, texts


@dataclass(frozen=True, slots=True)
class Answers:
    """What one framework, or all frameworks of a program together, do for the user.

    `names` are the frameworks that answer. Without any, every answer is no.
    """

    names: frozenset[str] = frozenset()
    makes_group: bool = False  # sets the process group up
    tears_down_group: bool = False  # destroys it
    numbers_processes: bool = False  # has ranks of its own, so that torch's group does not decide
    passes_local_rank: bool = False  # its launcher hands the script --local_rank
    places_devices: bool = False  # gives each process its device
    shards_loaders: bool = False  # gives each process its part of what loaders yield, equally many batches
    may_shard_loaders: bool = False  # may do so, by calls that are not followed
    shards_again: bool = False  # what it prepares it shards, also where that is a share already
    injects_samplers: bool = False  # puts a DistributedSampler into loaders without one
    owns_epoch: bool = False  # tells samplers the epoch
    divides_batches: bool = False  # a batch size may be that of all processes, as its configuration says
    wraps_models: bool = False  # puts models into objects of its own
    leaves_loop: bool = False  # wraps, and the loop and its backward stay the user's
    owns_backward: bool = False  # scales or reduces gradients by itself
    shards_parameters: bool = False  # a process holds a part of the parameters and gradients
    steps_schedulers: bool = False  # decides when a scheduler steps
    steps_once_a_process: bool = False  # steps a prepared scheduler once for each process
    reports_metrics: bool = False  # gathers what is logged
    decides_writers: bool = False  # decides which process writes files
    lets_first_through: bool = False  # has contexts in which the main process goes first

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def loads_for_user(self) -> bool:
        """Whether loaders are shared out, or may be."""
        return self.shards_loaders or self.may_shard_loaders


QUESTIONS = tuple(part.name for part in fields(Answers) if part.name != "names")


@dataclass(frozen=True, slots=True)
class Condition:
    """When an answer is yes: where one of some names is used (`wanted`), or where none is."""

    names: tuple[str, ...] = ()
    wanted: bool = True

    def holds(self, uses: Callable[[str], bool]) -> bool:
        """Whether the answer is yes in a program; `uses` says which names it uses."""
        return not self.names or any(map(uses, self.names)) == self.wanted


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object of a framework and its collective methods, each with a sentence that says what it does.

    `made_by` are full names, or beginnings of such that end in a dot, or ends that begin with one. `named` is what a variable is
    called that holds one, in lower case, or `*` and the end of that; it counts where nothing is known of the value.
    """

    framework: str
    name: str
    made_by: tuple[str, ...]
    bases: tuple[str, ...]
    named: str
    held_by: str  # another kind: a variable of this name counts only where such an object holds it
    needs_import: bool  # the name counts only where the framework is imported
    collective: Mapping[str, str]
    if_sharded: Mapping[str, str]  # collective where parameters are sharded, and not with plain DDP
    prepares: tuple[str, ...]  # methods that take loaders to share out what they give
    logs: tuple[str, ...]  # methods that reduce a value over all processes with sync_dist=True

    def makes(self, name: str) -> bool:
        """Whether a call of a library's function or class, by its full name, gives such an object."""
        return any(
            name.startswith(one) if one.endswith(".") else name.endswith(one) if one.startswith(".") else name == one
            for one in self.made_by
        )

    def is_named(self, name: str) -> bool:
        """Whether a variable of this name is taken for one."""
        return bool(self.named) and (name.endswith(self.named[1:]) if self.named.startswith("*") else name == self.named)

    def is_derived(self, bases: Iterable[str]) -> bool:
        """Whether a class with these library bases is of this kind."""
        return any(base.endswith(self.bases) for base in bases) if self.bases else False


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework as its file describes it."""

    name: str
    packages: Mapping[str, str]
    is_library: bool = False
    imports_with: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[ObjectKind, ...] = ()
    does: Mapping[str, Condition] = field(default_factory=dict)

    def is_imported(self, libraries: Iterable[str]) -> bool:
        """Whether one of some imported names is of this framework."""
        return any(
            library.partition(".")[0] in self.packages or any(word in library.lower() for word in self.imports_with)
            for library in libraries
        )

    def answers(self, uses: Callable[[str], bool] = lambda name: True) -> Answers:
        """What it does in a program."""
        return Answers(frozenset({self.name}), **{name: when.holds(uses) for name, when in self.does.items()})


_KEYS = ("name", "library", "packages", "imports-with", "runs", "methods", "functions", "objects", "does")
_OBJECT_KEYS = ("made-by", "bases", "named", "held-by", "needs-import", "collective", "if-sharded", "prepares", "logs")


def framework_of(table: dict[str, Any]) -> Framework:
    """Return the framework that a table describes. Raises KnowledgeError."""
    known_keys(table, _KEYS, "a framework")
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise KnowledgeError("a framework needs a 'name'")
    given = table.get("does", {})
    if not isinstance(given, dict):
        raise KnowledgeError("'does' must be a table of answers")
    known_keys(given, [question.replace("_", "-") for question in QUESTIONS], "'does'")
    objects = _table(table, "objects")
    return Framework(
        name,
        _sentences(table, "packages"),
        table.get("library") is True,
        texts(table.get("imports-with", []), "'imports-with'"),
        texts(table.get("runs", []), "'runs'"),
        _sentences(table, "methods"),
        _sentences(table, "functions"),
        tuple(_object(name, kind, one) for kind, one in objects.items()),
        {key.replace("-", "_"): when for key, answer in given.items() if (when := _condition(key, answer)) is not None},
    )


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise KnowledgeError(f"'{key}' must be a table")
    return value


def _sentences(table: dict[str, Any], key: str) -> dict[str, str]:
    value = _table(table, key)
    if not all(isinstance(item, str) for item in value.values()):
        raise KnowledgeError(f"'{key}' must be a table of texts")
    return value


def _condition(key: str, answer: Any) -> Condition | None:
    if isinstance(answer, bool):
        return Condition() if answer else None
    if isinstance(answer, dict) and len(answer) == 1:
        known_keys(answer, ("if-used", "unless-used"), f"'{key}'")
        ((when, names),) = answer.items()
        return Condition(texts(names, f"'{when}' of '{key}'"), when == "if-used")
    raise KnowledgeError(f"'{key}' must be true, false, {{ if-used = [..] }} or {{ unless-used = [..] }}")


def _object(framework: str, kind: str, table: Any) -> ObjectKind:
    if not isinstance(table, dict):
        raise KnowledgeError(f"the object '{kind}' must be a table")
    known_keys(table, _OBJECT_KEYS, f"the object '{kind}'")
    return ObjectKind(
        framework,
        kind,
        texts(table.get("made-by", []), "'made-by'"),
        texts(table.get("bases", []), "'bases'"),
        str(table.get("named", "")),
        str(table.get("held-by", "")),
        table.get("needs-import") is True,
        _sentences(table, "collective"),
        _sentences(table, "if-sharded"),
        texts(table.get("prepares", []), "'prepares'"),
        texts(table.get("logs", []), "'logs'"),
    )


@functools.cache
def frameworks() -> Mapping[str, Framework]:
    """Return the frameworks that are known, by name."""
    found = map(framework_of, tables("frameworks"))
    return {one.name: one for one in found}


@functools.cache
def marks() -> Mapping[str, str]:
    """Return, for each package of a framework, the mark by which its own source is recognised."""
    return {package: mark for one in frameworks().values() for package, mark in one.packages.items() if mark}


def answers_of(libraries: Collection[str], uses: Callable[[str], bool], known: Iterable[Framework]) -> Answers:
    """Return what the frameworks among `known` do that a program imports."""
    found = [one for one in known if one.is_imported(libraries)]
    return _joined([one.answers(uses) for one in found if not one.is_library])


def _joined(answers: Collection[Answers]) -> Answers:
    names = frozenset().union(*(one.names for one in answers))
    return Answers(names, **{question: any(getattr(one, question) for one in answers) for question in QUESTIONS})


def one(name: str) -> Answers:
    """Return what one framework does, by its name; no to all where it is not known."""
    found = frameworks().get(name)
    return Answers() if found is None else found.answers()


__all__ = ["QUESTIONS", "Answers", "Framework", "ObjectKind", "answers_of", "framework_of", "frameworks", "marks", "one", "parse"]
