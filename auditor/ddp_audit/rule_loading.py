"""Every rule that holds: the installed ones, those of entry points `ddp_audit.rules`, and those of folders that the settings name.

Rules are code: what a project's settings name is imported, unlike anything that is audited.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from ddp_audit.rule import Rule, load_rules, rules_in

ENTRY_POINTS = "ddp_audit.rules"  # each names a package, whose modules hold a rule each


class RuleError(Exception):
    """Rules that cannot be loaded; the text is one line for the user."""


def every_rule(folders: Sequence[str] = ()) -> list[Rule]:
    """One instance of each rule, by code.

    Raises RuleError where a module cannot be imported, a rule is not whole, or two rules share a code or a name.
    """
    found: dict[str, Rule] = {}
    codes: dict[str, str] = {}  # by name
    for rule in [*load_rules(), *_of_entry_points(), *(rule for folder in folders for rule in _of_folder(Path(folder)))]:
        if rule.code in found:
            raise RuleError(f"two rules have the code {rule.code}: {found[rule.code].name} and {rule.name}")
        if rule.name in codes:
            raise RuleError(f"two rules have the name {rule.name}: {codes[rule.name]} and {rule.code}")
        found[rule.code], codes[rule.name] = rule, rule.code
    return [found[code] for code in sorted(found)]


def _of_entry_points() -> Iterator[Rule]:
    if distributions_with_rules() == []:
        return
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        yield from _checked(f"entry point {point.name}", functools.partial(load_rules, point.value))


def distributions_with_rules() -> list[tuple[str, str]] | None:
    """Name and entry points of each distribution that has some for rules; None where sys.path has places that are not folders.

    importlib.metadata would tell, and its import is a tenth of the audit of a script.
    """
    found = []
    for place in sys.path:
        try:
            with os.scandir(place or ".") as entries:
                infos = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info", ".egg"))]
        except NotADirectoryError:  # an archive
            return None
        except OSError:
            continue
        for info in infos:
            for name in ("entry_points.txt", "EGG-INFO/entry_points.txt"):
                try:
                    data = Path(info, name).read_bytes()
                except OSError:
                    continue
                if ENTRY_POINTS.encode() in data:
                    found.append((Path(info).name, data.decode(errors="replace")))
    return sorted(found)


def _of_folder(folder: Path) -> Iterator[Rule]:
    if not folder.is_dir():
        raise RuleError(f"{folder}: no such folder of rules")
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("_"):
            yield from _checked(str(path), functools.partial(_of_file, path))


def _of_file(path: Path) -> list[Rule]:
    return list(rules_in(_import_file(path)))


def _import_file(path: Path) -> ModuleType:
    """A module of a rule folder; it may import its neighbours by their names."""
    name = f"ddp_audit_own_rules_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    neighbours = str(path.parent.absolute())
    sys.path.insert(0, neighbours)
    # Bytecode goes by whole seconds and the length: a rule that is being written would be taken for the one before.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(neighbours)
        sys.dont_write_bytecode = before
    return module


def _checked(where: str, load: Callable[[], list[Rule]]) -> list[Rule]:
    try:
        rules = load()
    except Exception as error:  # whatever the module of another project raises
        text = " ".join(str(error).split())
        raise RuleError(f"{where}: the rules cannot be loaded: {type(error).__name__}: {text}") from None
    for rule in rules:
        missing = [name for name in ("code", "name", "level", "summary", "rationale", "fix_hint") if not getattr(rule, name, "")]
        if missing:
            raise RuleError(f"{where}: {type(rule).__name__} has no {', '.join(missing)}")
    return rules
