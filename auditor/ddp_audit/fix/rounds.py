"""Applying fixes: a round fixes every file once, the result is audited, and so on until nothing is left to fix.

Files change in memory alone. A fix that does not take its finding away, brings one that no fix takes away, or leaves a file that
cannot be read, is taken back.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from ddp_audit import budget
from ddp_audit.findings import Finding
from ddp_audit.fix.catalogue import FIXES
from ddp_audit.fix.text import Edit, applied, as_bytes, edit_between, unified_diff
from ddp_audit.fix.tree import FixNotApplicable, Tree, walk
from ddp_audit.outcome import AuditResult
from ddp_audit.source.files import SourceError, decode, display_path, parse_text, read_bytes
from ddp_audit.source.notebook import SUFFIX

Audit = Callable[[Mapping[str, bytes]], AuditResult]

_MOST_ROUNDS = 25
_ONE_A_ROUND = ("DDP208", "DDP601")  # the next one may be fixed by this one, or use the name that it writes


@dataclass(slots=True)
class FixResult:
    """What fixing came to. `before` and `after` hold files by absolute path, `result` is the audit of what is left."""

    result: AuditResult
    before: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    fixed: list[Finding] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # fingerprint of a finding to the reason
    held_back: int = 0  # unsafe fixes that were not asked for

    @property
    def changed(self) -> list[str]:
        """Absolute paths of the files that differ now, in order."""
        return sorted(path for path, data in self.after.items() if data != self.before[path])

    def diff(self, shown: Callable[[str], str]) -> str:
        """The unified diffs of all changed files."""
        texts = [(shown(path), self.before[path], self.after[path]) for path in self.changed]
        return "".join(unified_diff(path, decode(before, path), decode(after, path)) for path, before, after in texts)

    def write(self) -> None:
        """Writes the changed files, each in one step. Raises SourceError where one was changed meanwhile or cannot be written."""
        for path in self.changed:
            if read_bytes(Path(path)) != self.before[path]:
                raise SourceError(display_path(path), None, "was changed meanwhile; nothing is written to it")
            _write(Path(path).resolve(), self.after[path])


def apply_fixes(audit: Audit, overlay: Mapping[str, bytes], unsafe: bool) -> FixResult:
    """Audit, fix and audit again until no fix is left. `overlay` holds texts that are not on the disk."""
    outcome = FixResult(audit(overlay))
    for _ in range(_MOST_ROUNDS):
        done = _round(outcome, overlay, unsafe)
        if not done:
            break
        earlier = outcome.result
        outcome.result = audit({**overlay, **outcome.after})
        if _revert(outcome, earlier, done):
            outcome.result = audit({**overlay, **outcome.after})
    eligible = [finding for finding in outcome.result.findings if finding.fix is not None and finding.code in FIXES]
    outcome.held_back = 0 if unsafe else sum(finding.fix is not None and finding.fix.safety == "unsafe" for finding in eligible)
    return outcome


@dataclass(slots=True)
class _Done:
    """What one round did to one file."""

    earlier: bytes
    fixed: list[Finding]


def _round(outcome: FixResult, overlay: Mapping[str, bytes], unsafe: bool) -> dict[str, _Done]:
    wanted = ("safe", "unsafe") if unsafe else ("safe",)
    by_file: dict[str, list[Finding]] = {}
    for finding in outcome.result.findings:
        fix = finding.fix
        if fix is not None and fix.safety in wanted and finding.code in FIXES and finding.fingerprint not in outcome.refused:
            by_file.setdefault(_absolute(finding.span.path), []).append(finding)
    done: dict[str, _Done] = {}
    for path, findings in by_file.items():
        try:
            if path.endswith(SUFFIX):
                raise FixNotApplicable("fixes are not applied to notebooks")
            data = {**overlay, **outcome.after}.get(path)
            if data is None:
                data = read_bytes(Path(path))
            text = decode(data, path)
            with refused_past_budget():
                new, fixed = _fix_text(text, findings, outcome.refused)
            if not fixed:
                continue
            parse_text(new, path)
        except (SourceError, FixNotApplicable) as error:
            outcome.refused.update((finding.fingerprint, str(error)) for finding in findings)
            continue
        outcome.before.setdefault(path, data)
        outcome.after[path] = as_bytes(new, data)
        outcome.fixed += fixed
        done[path] = _Done(data, fixed)
    return done


@contextlib.contextmanager
def refused_past_budget() -> Iterator[None]:
    """Raise Refused where the fixes of a file take more than an audit may."""
    try:
        with budget.bounded_memory(), budget.bounded_time():
            yield
    except MemoryError:
        raise FixNotApplicable(f"it {budget.NEEDS_TOO_MUCH}") from None
    except RecursionError:
        raise FixNotApplicable("the file is nested too deeply") from None
    except budget.GaveUp:
        raise FixNotApplicable(f"it {budget.takes_too_long()}") from None


def _fix_text(text: str, findings: list[Finding], refused: dict[str, str]) -> tuple[str, list[Finding]]:
    """The text with those fixes whose edits do not overlap; the others are left for the next round."""
    tree = Tree(text)
    edits: list[Edit] = []
    fixed: list[Finding] = []
    for finding in findings:
        if finding.code in _ONE_A_ROUND and any(other.code == finding.code for other in fixed):
            continue
        try:
            edit = edit_for(text, tree, finding)
        except FixNotApplicable as error:
            refused[finding.fingerprint] = str(error)
            continue
        if edit is not None and not any(edit.overlaps(other) for other in edits):
            edits.append(edit)
            fixed.append(finding)
    return applied(text, edits), fixed


def edit_for(text: str, tree: Tree, finding: Finding) -> Edit | None:
    """What the codemod of a finding changes in a text; None where that is nothing. Raises Refused."""
    after = FIXES[finding.code](tree, finding)
    lost = _comments(tree.module) - _comments(after)
    if lost:
        raise FixNotApplicable(f"the comment {next(iter(lost))!r} would be lost")
    return edit_between(text, after.code)


def edits_of(findings: Iterable[Finding], texts: Mapping[str, str]) -> dict[int, Edit]:
    """What the fix of each finding changes by itself in the texts, which are by path; by the id of those it does not decline."""
    found: dict[int, Edit] = {}
    trees: dict[str, Tree | None] = {}
    for finding in findings:
        path = finding.span.path
        if finding.code not in FIXES or path.endswith(SUFFIX):
            continue
        try:
            with refused_past_budget():
                tree = trees[path] if path in trees else trees.setdefault(path, Tree(texts[path]))
                edit = None if tree is None else edit_for(texts[path], tree, finding)
        except FixNotApplicable:
            trees.setdefault(path, None)
            continue
        if edit is not None:
            found[id(finding)] = edit
    return found


def _comments(module: cst.Module) -> Counter[str]:
    return Counter(node.value for node in walk(module) if isinstance(node, cst.Comment))


def _revert(outcome: FixResult, earlier: AuditResult, done: Mapping[str, _Done]) -> bool:
    """Undoes the round in files where it did not take away what it should have, or brought something. Whether there were any."""
    old, new = _counts(earlier), _counts(outcome.result)
    unreadable = {_absolute(error.path) for error in outcome.result.errors} - {_absolute(error.path) for error in earlier.errors}
    undone = False
    for path, what in done.items():
        fewer = Counter((finding.code, finding.span.path) for finding in what.fixed)
        still = path in unreadable or any(new[key] > old[key] - number for key, number in fewer.items())
        brought = sorted({f.code for f in _grave(outcome.result, path) if new[f.code, f.span.path] > old[f.code, f.span.path]})
        if still or brought:
            undone = True
            outcome.after[path] = what.earlier
            reason = "the finding is still there after the fix" if still else f"the fix would bring {', '.join(brought)}"
            for finding in what.fixed:
                outcome.fixed.remove(finding)
                outcome.refused[finding.fingerprint] = reason
    return undone


def _grave(result: AuditResult, path: str) -> list[Finding]:
    """The findings in a file that are more than infos and that no further round can fix."""
    return [
        finding
        for finding in result.findings
        if finding.severity != "info"
        and _absolute(finding.span.path) == path
        and (finding.fix is None or finding.fix.safety == "display-only" or finding.code not in FIXES)
    ]


def _absolute(shown: str) -> str:
    return str(Path(shown).absolute())


def _counts(result: AuditResult) -> Counter[tuple[str, str]]:
    return Counter((finding.code, finding.span.path) for finding in result.findings)


def _write(path: Path, data: bytes) -> None:
    try:
        mode = path.stat().st_mode
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            temporary.chmod(mode & 0o7777)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SourceError(display_path(path), None, f"cannot be written: {error.strerror or error}") from None
