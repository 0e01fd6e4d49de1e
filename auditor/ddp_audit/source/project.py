"""The project's own files: what the given paths name, which of them are entries, and what an import leads to.

Files are read and parsed lazily and once. Nothing is imported or executed, and no import is followed out of the project.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ddp_audit.budget import TOO_MUCH_MEMORY
from ddp_audit.graphs import parts_of
from ddp_audit.knowledge.framework import marks
from ddp_audit.source import dependency_log
from ddp_audit.source.binding import binds
from ddp_audit.source.dependency_log import DependencyLog
from ddp_audit.source.facts import Facts
from ddp_audit.source.files import SourceError, SourceFile, check_text, decode, display_path, parse_file, read_bytes
from ddp_audit.source.gitignore import Ignored
from ddp_audit.source.notebook import SUFFIX
from ddp_audit.source.paths import leads_out
from ddp_audit.source.prefilter import PACKAGE, import_words, is_plain_test, mentions_distributed

ROOT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
Tell = Callable[[str, int, int, str], None]  # what is done, how many are done, of how many, and a path at hand
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})  # and hidden ones


class Project:
    """The files below the roots of the given paths.

    A given file is always an entry. In a given folder the entries are the files that name something of distributed training,
    or import a project file that does, unless another of them imports them. Unit tests that name nothing of it are none, and
    import nothing in this sense. The other files of a folder are parsed once, for their syntax errors, and not kept.

    `overlay` gives the bytes of files by absolute path that are read in place of what the disk holds: standard input under a
    name, files as a fix would leave them, or an editor's documents. Imports find those that the disk does not hold too. With
    `force_exclude` a given file too is passed over where a pattern excludes it.
    Of a folder, files are left out that git ignores, with `respect_gitignore`, and links to files outside of it.
    Patterns name files relative to the working directory, or to the folder `home`.
    `facts` are what earlier audits learned of contents, and take up what this one learns. `tell` hears how far it has come.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        exclude: Sequence[str] = (),
        *,
        respect_gitignore: bool = False,
        force_exclude: bool = False,
        home: str = "",
        overlay: Mapping[str, bytes] | None = None,
        roots: Sequence[str] = (),
        facts: Facts | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._tell = tell
        self.errors: list[SourceError] = []
        self._facts = Facts() if facts is None else facts
        self._exclude = tuple(exclude)
        self._respect_gitignore = respect_gitignore
        self._ignores = False  # whether something was left out for that
        self._force_exclude = force_exclude
        self._home = home
        self._overlay = dict(overlay or {})
        self._own_roots = [os.path.abspath(root) for root in roots]
        self._files: dict[str, SourceFile | None] = {}
        self._bytes: dict[str, bytes] = {}  # read by the gate, dropped once parsed
        self._loading: dict[str, DependencyLog] = {}  # what the loading of each file looked at
        self._wanted: dict[str, None] = {}  # files asked for since `begin`
        self._modules: dict[tuple[str, str], tuple[str | None, DependencyLog]] = {}
        self._roots: dict[str, tuple[tuple[str, ...], DependencyLog]] = {}
        self._frameworks: dict[str, tuple[bool, DependencyLog]] = {}
        self._script_folders: dict[str, None] = {}
        self._folders: set[str] = set()  # absolute paths of the folders that the user named
        self.given: set[str] = set()  # absolute paths that the user named, or that lie in a folder named
        self.scripts: set[str] = set()  # absolute paths of files that the user named
        self.passed_by: set[str] = set()  # absolute paths of files that parse and have nothing to do with distributed training
        self.entries: list[SourceFile] = []
        chosen: dict[str, None] = {}
        for path in paths:
            for entry in self._entries_of(Path(path)):
                chosen.setdefault(os.path.abspath(entry))
        for entry_path in chosen:
            file = self.load(entry_path)
            if file is not None:
                self.entries.append(file)

    @property
    def files(self) -> list[SourceFile]:
        """Every file parsed so far, by path."""
        return sorted((file for file in self._files.values() if file is not None), key=lambda file: file.path)

    @property
    def read_paths(self) -> list[str]:
        """Absolute paths of every file that was asked for since `begin`, those that failed to load included."""
        return list(self._wanted)

    @property
    def script_folders(self) -> list[str]:
        """The folders that imports are looked up in because of the paths that were given."""
        return list(self._script_folders)

    def begin(self, entry: SourceFile) -> None:
        """From now on `read_paths` is of one entry: other entries have no say in what is read for it."""
        self._wanted = {}
        self.load(entry.abspath)

    def failed(self, path: str) -> bool:
        """Whether a file was to be loaded and could not be."""
        return path in self._files and self._files[path] is None

    def load(self, path: str | os.PathLike[str], module: str | None = None) -> SourceFile | None:
        """The parsed file, or None where it cannot be had; the reason is then in `errors`, once."""
        absolute = os.path.abspath(path)
        self._wanted[absolute] = None
        if absolute in self._files:
            if absolute in self._loading:
                dependency_log.add(self._loading[absolute])
            return self._files[absolute]
        with dependency_log.nested_recording() as noted:
            self._files[absolute] = self._loaded(absolute, module)
        self._loading[absolute] = noted
        return self._files[absolute]

    def _loaded(self, absolute: str, module: str | None) -> SourceFile | None:
        try:
            name = module or self._module_name(Path(absolute))
            data = self._bytes.pop(absolute, None)
            if data is None:
                data = self._read(absolute)
            else:
                dependency_log.content(absolute, data)
            file = parse_file(Path(absolute), name, data, parses=self._facts.parses(absolute, data))
        except SourceError as error:
            self.errors.append(error)
            return None
        except MemoryError:
            self.errors.append(SourceError(display_path(absolute), None, TOO_MUCH_MEMORY))
            return None
        self._facts.learn(absolute, data)
        return file

    def _read(self, absolute: str) -> bytes:
        given = self._overlay.get(absolute)
        return read_bytes(absolute) if given is None else given

    def is_in_given_folder(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file lies in a folder that the user named."""
        absolute = os.path.abspath(path)
        return any(absolute.startswith(os.path.join(folder, "")) for folder in self._folders)

    def shares_project(self, script: str, path: str) -> bool:
        """Whether a file belongs to the project of a script: its repository, or what the script's settings name as roots.

        Without a repository the highest folder above the script with a mark of a project counts; without any, every file does.
        """
        home = self._project_folder(os.path.dirname(script))
        return any(path.startswith(os.path.join(root, "")) for root in (home, *self._own_roots))

    def _project_folder(self, folder: str) -> str:
        found, current = "", folder
        while True:
            marks = [mark for mark in ROOT_MARKS if dependency_log.exists(os.path.join(current, mark))]
            if marks:
                found = current
            if ".git" in marks or os.path.dirname(current) == current:
                return found
            current = os.path.dirname(current)

    def resolve_import(self, module: str, level: int, importer: SourceFile) -> SourceFile | None:
        """The project file that `import module`, or `from <level dots>module import ..`, in `importer` would load.

        `module` may be empty where `level` is not 0. A submodule is asked for by its full dotted name; a package without
        `__init__.py`, an installed distribution and the standard library give None.
        """
        path = self._locate(module, level, importer.abspath)
        return None if path is None else self.load(path)

    def finds(self, module: str, importer: SourceFile) -> bool:
        """Whether an absolute import of `module` in `importer` would load a project file. Reads nothing but folders."""
        return bool(module) and self._locate(module, 0, importer.abspath) is not None

    # Entries

    def _entries_of(self, path: Path) -> list[Path]:
        shown = display_path(path)
        if self._force_exclude and self._excluded(str(path), self._home):
            return []
        if os.path.abspath(path) in self._overlay:
            return self._given_file(path)
        if path.is_dir():
            self._folders.add(os.path.abspath(path))
            self._script_folders[os.path.abspath(path)] = None
            found = list(self._walk(path))
            if not found:
                but = " that git does not ignore" if self._ignores else ""
                self.errors.append(SourceError(shown, None, f"no Python files in this directory{but}"))
            self.given.update(os.path.abspath(file) for file in found)
            return self._entries_in(found)
        if not os.path.lexists(path):
            self.errors.append(SourceError(shown, None, "no such file or directory"))
            return []
        if not os.path.isfile(path):
            kind = "a symbolic link that leads nowhere" if path.is_symlink() and not path.exists() else "not a regular file"
            self.errors.append(SourceError(shown, None, f"is {kind}"))
            return []
        return self._given_file(path)

    def _given_file(self, path: Path) -> list[Path]:
        self._script_folders[os.path.dirname(os.path.abspath(path))] = None
        self.given.add(os.path.abspath(path))
        self.scripts.add(os.path.abspath(path))
        return [path]

    def _walk(self, folder: Path) -> Iterator[Path]:
        home = self._home if not self._excluded(str(folder), self._home) else ""  # who asks for it by name means what is in it
        given = os.path.abspath(folder)
        ignored = {given: Ignored.of(given) if self._respect_gitignore else Ignored()}
        for top, folders, names in os.walk(folder, followlinks=False):
            here = os.path.abspath(top)
            dependency_log.folder(here)
            rules = ignored.pop(here, None) or Ignored()
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".")
                and name not in _SKIPPED_FOLDERS
                and not dependency_log.exists(os.path.join(top, name, "pyvenv.cfg"))
                and not self._excluded(os.path.join(top, name), home)
                and not self._ignored(rules, os.path.join(here, name), True)
            )
            if self._respect_gitignore:
                ignored |= {inner: rules.inside(inner) for inner in (os.path.join(here, name) for name in folders)}
            for name in sorted(names):
                path = os.path.join(top, name)
                if name.endswith((".py", SUFFIX)) and os.path.isfile(path) and not self._excluded(path, home):
                    absolute = os.path.join(here, name)
                    if not self._ignored(rules, absolute, False) and not leads_out(absolute, (given,)):
                        yield Path(path)

    def _ignored(self, rules: Ignored, path: str, is_folder: bool) -> bool:
        ignored = rules.ignores(path, is_folder)
        self._ignores = self._ignores or ignored
        return ignored

    def _excluded(self, path: str, home: str) -> bool:
        shown = display_path(path)
        return any(fits_pattern(shown, pattern, home) for pattern in self._exclude)

    def _entries_in(self, files: list[Path]) -> list[Path]:
        """The entries of a folder: files that matter, and those that import them, less those that another one imports."""
        rest: dict[str, bytes] = {}
        words: dict[str, set[bytes]] = {}
        matter: dict[str, None] = {}
        for number, path in enumerate(files):
            absolute = os.path.abspath(path)
            if absolute in self._files:
                continue
            if self._tell is not None:
                self._tell("reading", number, len(files), absolute)
            try:
                data = self._read(absolute)
                if mentions_distributed(data):
                    matter[absolute] = None
                    self._bytes[absolute] = data
                elif absolute.endswith(SUFFIX):
                    self.passed_by.add(absolute)
                else:
                    if not self._facts.parses(absolute, data):
                        shown = display_path(path)
                        check_text(decode(data, shown), shown)
                        self._facts.learn(absolute, data)
                    rest[absolute] = data
            except SourceError as error:
                self.errors.append(error)
                self._files[absolute] = None
        imports: dict[str, set[str]] = {}
        fresh = list(matter)
        while fresh:
            for path_name in fresh:
                file = self.load(path_name)
                imports[path_name] = set() if file is None else set(self.imports_of(file))
            stems = {stem for path_name in fresh for stem in _stems(path_name)}
            wanted = set(fresh)
            fresh = []
            for path_name, data in list(rest.items()):
                if path_name not in words:
                    words[path_name] = set() if is_plain_test(display_path(path_name), data) else import_words(data)
                if stems.isdisjoint(words[path_name]):
                    continue
                self._bytes[path_name] = data
                file = self.load(path_name)
                if file is not None and wanted.intersection(self.imports_of(file)):
                    fresh.append(path_name)
                    matter[path_name] = None
                    del rest[path_name]
        self.passed_by.update(rest)
        return [Path(name) for name in _tops(sorted(matter), imports, self._is_main)]

    def imports_of(self, file: SourceFile) -> Iterator[str]:
        """The absolute paths of the project files that a file imports, wherever in it."""
        for module, level in self._facts.imports(file, imported_modules):
            path = self._locate(module, level, file.abspath)
            if path is not None and path != file.abspath:
                yield path

    def _is_main(self, path: str) -> bool:
        file = self._files.get(path)
        return file is not None and self._facts.is_main(file, _is_main)

    # Imports

    def _locate(self, module: str, level: int, importer: str) -> str | None:
        folder = os.path.dirname(importer)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._inside(self._in_folder(folder, module), importer)
        key = (module, folder)
        return dependency_log.remembered(self._modules, key, lambda: self._inside(self._search(module, folder), importer))

    def _inside(self, path: str | None, importer: str) -> str | None:
        """A file that an import leads to; None where it is a link out of everything that imports are looked up in."""
        return None if path is None or leads_out(path, self._roots_of(os.path.dirname(importer))) else path

    def _search(self, module: str, folder: str) -> str | None:
        roots = self._roots_of(folder)
        if module.split(".")[0] in sys.stdlib_module_names:
            roots = roots[:1]  # only the script's own folder comes before the standard library on sys.path
        for root in roots:
            found = self._in_folder(root, module)
            if found is not None:
                return None if self._is_framework(root, module.split(".")[0], folder) else found
        return None

    def _is_framework(self, root: str, package: str, importer: str) -> bool:
        """Whether a package in a folder is a framework's own source, for a file in the folder `importer` outside of it."""
        mark = marks().get(package)
        if mark is None:
            return False
        top = os.path.join(root, package)
        if os.path.join(importer, "").startswith(os.path.join(top, "")):
            return False
        return dependency_log.remembered(self._frameworks, top, lambda: self._has_mark(top, mark))

    def _has_mark(self, top: str, mark: str) -> bool:
        package = os.path.join(top, "__init__.py")
        if not self._is_package(top):
            return False
        if mark.startswith("/"):
            return self._in_folder(top, mark[1:].replace("/", ".")) is not None
        try:
            return binds(decode(self._read(package), display_path(package)), mark)
        except SourceError:
            return False

    def _roots_of(self, folder: str) -> tuple[str, ...]:
        """Folders that an absolute import is looked up in: a script's own, the ones above it up to the repository, the cwd."""
        return dependency_log.remembered(self._roots, folder, lambda: self._find_roots(folder))

    def _find_roots(self, folder: str) -> tuple[str, ...]:
        # A script's own folder, then the folder its package starts in, then the sys.path of the scripts that may run it.
        roots = dict.fromkeys((folder, *self._own_roots, self._above_packages(folder), *self._script_folders))
        current = folder
        while True:
            marks = [mark for mark in ROOT_MARKS if dependency_log.exists(os.path.join(current, mark))]
            if marks:
                roots.update(dict.fromkeys((current, os.path.join(current, "src"))))
            if ".git" in marks or os.path.dirname(current) == current:
                break
            current = os.path.dirname(current)
        roots[os.getcwd()] = None
        return tuple(roots)

    def _in_folder(self, folder: str, module: str) -> str | None:
        base = os.path.join(folder, *module.split(".")) if module else folder
        package = os.path.join(base, "__init__.py")
        if package in self._overlay:
            return package
        found = dependency_log.module(base)
        return found or (base + ".py" if base + ".py" in self._overlay else None)

    def _above_packages(self, folder: str) -> str:
        """The first folder at or above `folder` that is not a package: where an absolute import of the package starts."""
        while self._is_package(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
        return folder

    def _is_package(self, folder: str) -> bool:
        mark = os.path.join(folder, "__init__.py")
        return mark in self._overlay or dependency_log.exists(mark)

    def _module_name(self, path: Path) -> str:
        """`pkg.sub.mod` by the chain of `__init__.py` above the file; the stem without one."""
        folder = os.path.dirname(path)
        top = self._above_packages(folder)
        parts = [] if folder == top else os.path.relpath(folder, top).split(os.sep)
        if path.stem != "__init__" or not parts:
            parts.append(path.stem)
        return ".".join(parts)


def fits_pattern(shown: str, pattern: str, home: str = "") -> bool:
    """Whether a pattern with wildcards fits a path, as reports show it, a folder above it, or one of its parts.

    The path counts as it is shown, and as it is from a folder `home`.
    """
    pattern = pattern.removeprefix("./").rstrip("/")
    parts = shown.split("/")
    above = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)] if "/" in pattern else [shown]
    if any(fnmatch.fnmatchcase(name, pattern) for name in (*above, *parts)):
        return True
    if not home:
        return False
    whole, below = os.path.abspath(shown), os.path.join(home, "")
    return whole.startswith(below) and fits_pattern(whole[len(below) :].replace(os.sep, "/"), pattern)


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, those of the outer blocks first. Expressions, which are most of a tree, are not walked."""
    queue: deque[ast.AST] = deque([tree])
    while queue:
        node = queue.popleft()
        for name in _BLOCKS:
            queue.extend(getattr(node, name, ()))
        yield node


def imported_modules(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each (module, level) that a file's import statements may load, submodules named by `from a import b` included."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                for end in range(1, len(parts) + 1):
                    yield ".".join(parts[:end]), 0
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node.level
            for alias in node.names:
                if alias.name != "*":
                    yield (f"{base}.{alias.name}" if base else alias.name), node.level


def _is_main(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and _tests_main(node.test) for node in tree.body)


def _tests_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and len(test.comparators) == 1
        and any(isinstance(side, ast.Name) and side.id == "__name__" for side in (test.left, test.comparators[0]))
    )


def _stems(path: str) -> list[bytes]:
    """The words one of which an import statement holds that loads a file."""
    name = os.path.basename(path)[:-3]
    if name != "__init__":
        return [os.fsencode(name)]
    return [os.fsencode(os.path.basename(os.path.dirname(path))), PACKAGE]


def _tops(paths: Sequence[str], imports: dict[str, set[str]], is_main: Callable[[str], bool]) -> list[str]:
    """Paths that no other one imports, those that run as scripts, and the first of each ring of imports that nothing leads to."""
    if not any(imports.values()):
        return sorted(paths)
    tops: set[str] = set()
    for members, is_imported in parts_of({path: imports.get(path, set()) for path in paths}):
        scripts = [path for path in members if is_main(path)]
        tops.update(scripts or ([] if is_imported else [min(members)]))
    return sorted(tops.intersection(paths))
