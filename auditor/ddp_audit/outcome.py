"""What an audit is asked for and what it comes to, apart from how it is made: all that reports and runs from the cache need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ddp_audit.findings import Finding
from ddp_audit.source.paths import place_of
from ddp_audit.source.problems import SourceError

if TYPE_CHECKING:
    from ddp_audit.launch.model import Launch
    from ddp_audit.rule import Rule
    from ddp_audit.source.notebook import Notebook


V = TypeVar("V")


class LazyMapping(Mapping[str, V]):
    """A mapping that is made when something of it is asked for."""

    def __init__(self, make: Callable[[], Mapping[str, V]]) -> None:
        self._make = make
        self._made: Mapping[str, V] | None = None

    def __getitem__(self, key: str) -> V:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> Mapping[str, V]:
        if self._made is None:
            self._made = self._make()
        return self._made


class UsageError(Exception):
    """An option that cannot be followed; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Options:
    """What an audit is asked for. `select` None means every rule; names are codes, rule names or prefixes of codes."""

    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    exclude: Sequence[str] = ()
    respect_gitignore: bool = True  # files of folders that git ignores are left out
    force_exclude: bool = False  # files given by name are checked with `exclude` too
    home: str = ""  # the absolute folder from which patterns may name files, where it is not the working directory
    min_confidence: str = "likely"
    world_size: int | None = None
    launch: str | Launch | None = None  # a command line, or one that was read
    settings: Sequence[str] = ()  # NAME=VALUE
    config_files: Sequence[str] = ()
    jobs: int = 1  # processes
    per_file_ignores: Sequence[tuple[str, Sequence[str]]] = ()  # pattern and rules
    levels: Sequence[tuple[str, str]] = ()  # rule, and error, warning, info or off
    target_torch: str | None = None
    preview: bool = False  # preview rules run too
    rule_folders: Sequence[str] = ()  # folders with rules of the project's own, which are loaded, and so executed
    withheld_rules: Sequence[str] = ()  # folders that the settings name and that nobody outside of the project allowed
    roots: Sequence[str] = ()  # folders that imports are looked up in too
    helpers: Sequence[tuple[str, Sequence[str]]] = ()  # kind of source/project_hints.py, and the names of the project's own
    stubs: Sequence[tuple[str, str]] = ()  # files that describe libraries: the path as reports show it, and the text
    show_imported: bool = False  # findings in imported files outside of the given folders too
    origins: Sequence[tuple[str, str]] = ()  # names of rules in the settings, and where they stand, for messages
    defaults_hold: bool = False  # options that nothing overrides keep their defaults, as in a run that is about to start


REACHED = ("process-group", "wrapper", "training-loop", "step", "evaluation")
# How far one script was followed. Several steps: up to the optimizer steps that a predicted run takes, or with loops of unknown
# length cut short. Functions only: nothing in the file calls them, so each was read by itself.
FOLLOWED = TO_THE_END, SEVERAL_STEPS, IN_PART, FUNCTIONS_ONLY = "to-the-end", "several-steps", "in-part", "functions-only"


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """A place that the audit did not follow. `what` says what it has there, and why; no line: somewhere in the file."""

    path: str
    line: int | None
    what: str
    cell: int | None = None  # of a notebook, whose line is meant then

    def __str__(self) -> str:
        return f"{self.path if self.line is None else place_of(self.path, self.line, cell=self.cell)}: {self.what}"


@dataclass(frozen=True, slots=True)
class Script:
    """A script that trains: what the audit reached in it (words of REACHED), and how far it was followed (of FOLLOWED)."""

    path: str
    reached: Sequence[str]
    followed: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far an audit came: the scripts that train, and the places that were not followed."""

    scripts: Sequence[Script] = ()
    not_followed: Sequence[NotFollowed] = ()

    @property
    def reached(self) -> list[str]:
        """What was reached in any of the scripts."""
        return [word for word in REACHED if any(word in script.reached for script in self.scripts)]

    @property
    def complete(self) -> bool:
        """Whether nothing was left unfollowed."""
        return not self.not_followed and all(script.followed == TO_THE_END for script in self.scripts)

    def to_json(self) -> dict[str, Any]:
        """The object of the documented JSON form."""
        scripts = [{"path": one.path, "reached": list(one.reached), "followed": one.followed} for one in self.scripts]
        left = [{"path": place.path, "cell": place.cell, "line": place.line, "what": place.what} for place in self.not_followed]
        return {"scripts": scripts, "reached": self.reached, "not_followed": left, "complete": self.complete}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Coverage:
        """The coverage of such an object."""
        scripts = tuple(Script(one["path"], tuple(one["reached"]), one["followed"]) for one in kept["scripts"])
        return cls(scripts, tuple(NotFollowed(**place) for place in kept["not_followed"]))


@dataclass(slots=True)
class AuditResult:
    """What an audit found. `notes` are whole lines for the report.

    `looked_at` are the paths of the Python files that were read, `sources` the lines of files that findings name, by path, and
    `notebooks` those of them whose lines are the joined code of a notebook's cells;
    `rules` are those that ran, by code, and `codes` all that were asked for. `known` counts what was found and a baseline
    holds; that is not among the findings. `left_out` are paths among `looked_at` whose findings are not reported, since they lie
    outside of what was given. `coverage` says how far the audit came (None where it was not measured), `predicted` is the
    outcome of the predicted run as the JSON form documents it (None where no rule asked for one).
    """

    findings: list[Finding] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    suppressed: int = 0
    known: int = 0
    notes: list[str] = field(default_factory=list)
    sources: Mapping[str, list[str]] = field(default_factory=dict)
    notebooks: Mapping[str, Notebook] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    files_read: set[str] = field(default_factory=set)
    codes: Collection[str] = frozenset()
    left_out: Set[str] = frozenset()
    coverage: Coverage | None = None
    predicted: Mapping[str, Any] | None = None

    @property
    def files(self) -> int:
        """How many Python files were read."""
        return len(self.files_read)

    def lines_of(self, path: str, cell: int | None) -> Sequence[str]:
        """The lines that a place's line numbers count in: those of a file, or of a cell of a notebook; empty where not known."""
        if cell is None:
            return self.sources.get(path, ())
        return self.notebooks[path].cells.get(cell, ()) if path in self.notebooks else ()

    def file_line(self, path: str, cell: int | None, line: int) -> int:
        """The line of the file itself, for readers that know no cells: in a notebook that of the JSON text which holds the line."""
        if cell is None:
            return line
        return self.notebooks[path].file_line(cell, line) if path in self.notebooks else 1

    def exit_code(self, strict: bool = False) -> int:
        """2 where work could not be done, 1 where a finding fails the check, else 0."""
        if self.errors:
            return 2
        failing = ("error", "warning") if strict else ("error",)
        return int(any(finding.severity in failing for finding in self.findings))
