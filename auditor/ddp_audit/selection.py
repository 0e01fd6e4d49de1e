"""Which rules an audit runs, by the names in its options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from ddp_audit.findings import CONFIDENCES
from ddp_audit.outcome import Options, UsageError
from ddp_audit.source import suppress
from ddp_audit.source.project_hints import ProjectHints

if TYPE_CHECKING:
    from ddp_audit.knowledge.stubs import Described
    from ddp_audit.rule import Rule

SUPPRESSION_RULES = (suppress.WITHOUT_CODE, suppress.UNKNOWN, suppress.UNUSED)


def withheld_note(folders: Sequence[str]) -> str:
    """Return the line about rules that the settings name and that were not loaded."""
    named = ", ".join(folder.replace(os.sep, "/") for folder in folders)
    return f"Rules of the project were not loaded: {named}. --allow-project-rules loads them, which executes them."


def preview_note(codes: Sequence[str]) -> str:
    """Return the line about preview rules that are named and do not run."""
    what = "is a preview rule and does" if len(codes) == 1 else "are preview rules and do"
    return f"{' and '.join(codes)} {what} not run without --preview (or `preview = true` in the settings)."


class Selection:
    """The rules of an audit. They are loaded when something asks for one: a tree without a training script needs none.

    Where the options name rules they are loaded at once. Raises UsageError for a name that is none.
    """

    def __init__(self, load: Callable[[], Sequence[Rule]], options: Options) -> None:
        if options.min_confidence not in CONFIDENCES:
            raise UsageError(f"no confidence is called '{options.min_confidence}': it is one of {', '.join(CONFIDENCES)}")
        self._load, self._options = load, options
        self._target = hints_of(options).torch
        named = (options.select, options.ignore, options.levels, options.per_file_ignores, options.rule_folders)
        if any(names not in (None, (), []) for names in named) or self._target is not None:
            _ = self.codes

    @property
    def is_loaded(self) -> bool:
        """Whether something asked for a rule."""
        return "every" in self.__dict__

    @property
    def is_partial(self) -> bool:
        """Whether the settings name rules that were not loaded."""
        return bool(self._options.withheld_rules)

    @cached_property
    def every(self) -> Sequence[Rule]:
        """All rules that there are."""
        return self._load()

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of every code."""
        return rule_names(self.every)

    @cached_property
    def codes(self) -> set[str]:
        """The codes that findings may have, those about suppression comments included."""
        options = self._options
        lenient, origins = self.is_partial, dict(options.origins)
        wanted = set(self.names) if options.select is None else match_rules(options.select, self.names, lenient, origins)
        off = [name for name, level in options.levels if level == "off"]
        late = {rule.code for rule in self.every if self._target is not None and not rule.since <= self._target}
        return wanted - match_rules([*options.ignore, *off], self.names, lenient, origins) - late - self._preview

    @property
    def _preview(self) -> set[str]:
        """The preview rules, where they do not run."""
        return set() if self._options.preview else {rule.code for rule in self.every if rule.preview}

    @property
    def unheeded(self) -> list[str]:
        """The preview rules that the options name one by one and that do not run."""
        if not self.is_loaded:
            return []
        named = [*(self._options.select or ()), *(name for name, level in self._options.levels if level != "off")]
        words = {part.strip().lower() for text in named for part in text.split(",")}
        return sorted(code for code in self._preview if {code.lower(), self.names[code]} & words)

    @cached_property
    def chosen(self) -> list[Rule]:
        """The rules that run."""
        return [rule for rule in self.every if rule.code in self.codes]

    @property
    def by_code(self) -> Mapping[str, Rule]:
        """The rules that run, by code."""
        return {rule.code: rule for rule in self.chosen}


def rule_names(rules: Iterable[Rule]) -> dict[str, str]:
    """The name of every code: the given rules and what the audit says of suppression comments."""
    return {**{rule.code: rule.name for rule in rules}, **dict(SUPPRESSION_RULES)}


def match_rules(
    names: Sequence[str], known: dict[str, str], lenient: bool = False, origins: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """The codes that codes, names and prefixes of codes stand for; `ALL` is every one.

    Raises UsageError for an unknown one, unless that is `lenient`: it may be one of rules that were not loaded. `origins` says
    for names of the settings where they stand, for the message.
    """
    codes: set[str] = set()
    for name in (part.strip() for text in names for part in text.split(",")):
        if not name:
            continue
        upper, lower_case = name.upper(), name.lower()
        hits = {code for code, rule_name in known.items() if code.startswith(upper) or rule_name == lower_case}
        if upper == "ALL":
            hits = set(known)
        if not hits and not lenient:
            import difflib  # for a message that ends the run

            near = difflib.get_close_matches(upper, known, 1, 0.6) or difflib.get_close_matches(lower_case, known.values(), 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            where = f"{origins[name]}: " if name in origins else ""
            raise UsageError(f"{where}no rule is called '{name}'{hint} ('ddp-audit rules' lists them)")
        codes |= hits
    return codes


def hints_of(options: Options) -> ProjectHints:
    """What the settings tell of the project and its torch. Raises UsageError."""
    names = {name: kind for kind, own in options.helpers for name in own}
    files = described_by(options)
    stubs = {name: stub for file in files for name, stub in file.stubs.items()}
    hints = ProjectHints(names, stubs=stubs, frameworks=tuple(file.framework for file in files if file.framework is not None))
    if options.target_torch is None:
        return hints
    parts = options.target_torch.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise UsageError(f"'{options.target_torch}' is not a version of torch")
    return replace(hints, torch=(int(parts[0]), int(parts[1])))


def described_by(options: Options) -> list[Described]:
    """What the files of `stubs` describe. Raises UsageError."""
    if not options.stubs:
        return []
    from ddp_audit.knowledge.stubs import KnowledgeError, described_in

    try:
        return [described_in(text, path) for path, text in options.stubs]
    except KnowledgeError as error:
        raise UsageError(str(error)) from None


def stubs_note(files: Sequence[Described]) -> str:
    """Says how many descriptions are in effect: they can make findings go."""
    count = sum(file.count for file in files)
    named = ", ".join(file.path for file in files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")
    return f"{count} description{'s' * (count != 1)} of libraries from {named} {'are' if count != 1 else 'is'} in effect."
