"""Which files are audited, and what an import leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.source.project import Project

DDP = "import torch\nfrom torch.nn.parallel import DistributedDataParallel\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write(**files: str) -> None:
        """Files by name; `__` stands for a folder's slash and `init` for `__init__`."""
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/").replace("init", "__init__") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def entries(*paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    return [file.path for file in Project(paths, exclude).entries]


def test_a_given_script_is_an_entry_whatever_it_holds(write) -> None:
    write(plain="a = 1\n")
    assert entries("plain.py") == ["plain.py"]


def test_in_a_folder_only_what_matters(write) -> None:
    write(train=DDP, other="import os\n", sub__eval=DDP)
    project = Project(["."])
    assert [file.path for file in project.entries] == ["sub/eval.py", "train.py"]
    assert len(project.passed_by) == 1


def test_a_file_that_another_entry_imports_is_none_itself(write) -> None:
    write(train="from helpers import setup\n", helpers=DDP)
    assert entries(".") == ["train.py"]


def test_a_unit_test_is_no_entry_and_hides_none(write) -> None:
    test = "import pytest\nimport engine\n"
    write(tests__test_engine=test, tests__test_ranks=test + "engine.run(world_size=2)\n", engine=DDP)
    assert entries(".") == ["tests/test_ranks.py"]
    Path("tests/test_ranks.py").unlink()
    assert entries(".") == ["engine.py"]
    assert entries(".", "tests/test_engine.py") == ["engine.py", "tests/test_engine.py"]


def test_a_file_that_imports_one_that_matters_is_an_entry_through_a_chain(write) -> None:
    write(main="import middle\n", middle="import pkg.dist\n", pkg__dist=DDP)
    assert entries(".") == ["main.py"]


def test_a_script_that_is_imported_too_stays_an_entry(write) -> None:
    write(train=DDP + "def f(): pass\nif __name__ == '__main__':\n    f()\n", sweep="from train import f\n")
    assert entries(".") == ["sweep.py", "train.py"]


def test_a_ring_that_something_leads_to_has_no_entry_of_its_own(write) -> None:
    write(a=DDP + "import b\n", b=DDP + "import a\n", train="import b\n")
    assert entries(".") == ["train.py"]


def test_of_rings_in_a_row_the_first_one_has_the_entry(write) -> None:
    write(a=DDP + "import b\n", b=DDP + "import a\n", y=DDP + "import z, a\n", z=DDP + "import y\n")
    assert entries(".") == ["y.py"]


def test_the_script_of_a_ring_is_its_entry(write) -> None:
    write(a=DDP + "import b\n", b=DDP + "import a\nif __name__ == '__main__':\n    a.f()\n")
    assert entries(".") == ["b.py"]


def test_a_ring_of_imports_has_one_entry(write) -> None:
    write(a=DDP + "import b\n", b=DDP + "import a\n")
    assert entries(".") == ["a.py"]


def test_excluded_and_hidden_folders(write) -> None:
    write(train=DDP, old__train=DDP, node_modules__x=DDP)
    Path(".hidden").mkdir()
    Path(".hidden/x.py").write_text(DDP)
    Path("environment").mkdir()
    Path("environment/pyvenv.cfg").write_text("")
    Path("environment/x.py").write_text(DDP)
    assert entries(".", exclude=("old",)) == ["train.py"]
    assert entries(".", exclude=("old/*.py", "train.py")) == []


def test_a_link_that_loops_is_not_followed(write) -> None:
    write(train=DDP)
    Path("loop").symlink_to(".", target_is_directory=True)
    assert entries(".") == ["train.py"]


def test_errors_do_not_stop_the_others(write) -> None:
    write(train=DDP, broken="def f(:\n")
    Path("empty").mkdir()
    project = Project([".", "nowhere.py", "empty"])
    assert [file.path for file in project.entries] == ["train.py"]
    assert sorted((e.path, e.line) for e in project.errors) == [("broken.py", 1), ("empty", None), ("nowhere.py", None)]


def test_each_file_is_loaded_once(write) -> None:
    write(train="import helpers\n", helpers="a = 1\n")
    project = Project(["train.py"])
    first = project.resolve_import("helpers", 0, project.entries[0])
    assert first is not None
    assert first is project.resolve_import("helpers", 0, project.entries[0]) is project.load("helpers.py")


def resolved(script: str, module: str, level: int = 0) -> str | None:
    project = Project([script])
    found = project.resolve_import(module, level, project.entries[0])
    return None if found is None else found.path


def test_absolute_imports(write) -> None:
    write(scripts__train="", scripts__near="", far="", src__inner__init="", src__inner__mod="")
    Path("pyproject.toml").write_text("")
    assert resolved("scripts/train.py", "near") == "scripts/near.py"
    assert resolved("scripts/train.py", "far") == "far.py"
    assert resolved("scripts/train.py", "inner") == "src/inner/__init__.py"
    assert resolved("scripts/train.py", "inner.mod") == "src/inner/mod.py"
    assert resolved("scripts/train.py", "inner.nothing") is None
    assert resolved("scripts/train.py", "torch") is None


def test_relative_imports(write) -> None:
    write(pkg__init="", pkg__a="", pkg__sub__init="", pkg__sub__b="")
    assert resolved("pkg/sub/b.py", "", 1) == "pkg/sub/__init__.py"
    assert resolved("pkg/sub/b.py", "a", 2) == "pkg/a.py"
    assert resolved("pkg/sub/b.py", "pkg.a") == "pkg/a.py"


def test_the_standard_library_is_not_shadowed_from_afar(write) -> None:
    write(scripts__train="", random="", scripts__copy="")
    Path(".git").mkdir()
    assert resolved("scripts/train.py", "random") is None
    assert resolved("scripts/train.py", "copy") == "scripts/copy.py"


def test_module_names(write) -> None:
    write(pkg__init="", pkg__a="", train="")
    names = {file.path: file.module for file in Project(["pkg/__init__.py", "pkg/a.py", "train.py"]).entries}
    assert names == {"pkg/__init__.py": "pkg", "pkg/a.py": "pkg.a", "train.py": "train"}
