"""Parts of a package that its `__init__` imports from itself are followed, however they are named where they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.program import lower
from ddp_audit.program.nodes import FileAccess
from ddp_audit.source.project import Project

FILES = {
    "pkg/__init__.py": "from . import parts, tools\nfrom . import tools as kit\nfrom .layers import Layer\nfrom . import deep\n",
    "pkg/layers.py": "class Layer:\n    pass\n",
    "pkg/tools.py": "import os\ndef make(path):\n    os.makedirs(path)\n",
    "pkg/parts.py": "from . import tools\nclass Part:\n    def __init__(self):\n        tools.make('x')\n",
    "pkg/deep/__init__.py": "from . import inner\nfrom .. import tools\n",
    "pkg/deep/inner.py": "from .. import parts\ndef build():\n    return parts.Part()\n",
}
USES = {
    "an attribute of the package": "import pkg as p\np.parts.Part()\n",
    "the package by its name": "import pkg\npkg.tools.make('x')\n",
    "from the package": "from pkg import parts\nparts.Part()\n",
    "under another name": "from pkg import kit\nkit.make('x')\n",
    "a package in it": "import pkg\npkg.deep.inner.build()\n",
    "its parent's part": "from pkg.deep import tools\ntools.make('x')\n",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_parts_that_a_package_imports(use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {**FILES, "run.py": use}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = Project(["run.py"])
    program = lower(project, project.entries[0])
    assert [node.text for node in program.of(FileAccess)] == ["os.makedirs(path)"]


def test_a_circle_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.py": "from b import x\n", "b.py": "from a import x\n", "run.py": "from a import x\nx()\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = Project(["run.py"])
    assert lower(project, project.entries[0]).nodes == []
