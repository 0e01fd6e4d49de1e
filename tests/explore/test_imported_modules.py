"""Modules of a project in an interpreted run: what each form of import binds is what CPython binds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_interpreted_programs import predicted

MODULES = {
    "pkg/__init__.py": "from .sizes import WIDTH\nfrom . import deep\nloaded = [1]\n",
    "pkg/sizes.py": "WIDTH = 3\n_HIDDEN = 9\ndef grow(n):\n    return n + WIDTH\n",
    "pkg/deep/__init__.py": "from ..sizes import WIDTH as BASE\nfrom .leaf import tenfold\nfrom .. import sizes as again\n",
    "pkg/deep/leaf.py": "from pkg import sizes\ndef tenfold():\n    return sizes.WIDTH * 10\n",
    "helpers.py": "COUNT = 0\ndef bump():\n    global COUNT\n    COUNT += 1\n    return COUNT\nif __name__ == '__main__':\n    COUNT = 99\n",
    "space/inner.py": "N = 8\n",
}
PROGRAMS = {
    "a package": "import pkg\nsend(pkg.WIDTH)\nsend(pkg.deep.BASE + len(pkg.loaded))\n",
    "a module of a package": "import pkg.sizes\nsend(pkg.sizes.grow(1))\nsend(pkg.WIDTH)\n",
    "a module by another name": "import pkg.deep.leaf as leaf\nsend(leaf.tenfold())\nimport helpers as h\nsend(h.bump())\n",
    "all names": "from pkg.sizes import *\nsend(grow(WIDTH))\nsend(2 if '_HIDDEN' in globals() else 1)\n",
    "names of a package": "from pkg.deep import BASE, tenfold as made\nsend(BASE + made())\nfrom pkg import deep\nsend(deep.again.WIDTH)\n",
    "a module out of a package": "from pkg import sizes\nfrom pkg.deep import leaf\nsend(sizes.grow(2) + leaf.tenfold())\n",
    "a state that is shared": "import helpers\nhelpers.bump()\nfrom helpers import COUNT, bump\nsend(bump() + COUNT)\nhelpers.COUNT = 10\nsend(bump())\nsend(COUNT)\n",
    "a folder without a file of its own": "import space.inner\nsend(space.inner.N)\nfrom space import inner\nsend(inner.N + 1)\nfrom space.inner import N\nsend(N + 2)\n",
    "an import in a function": "def f():\n    from pkg.sizes import grow as g\n    import helpers\n    return g(5) + helpers.bump()\nsend(f())\nsend(f())\n",
    "the name of the program": "import helpers\nsend(1 + helpers.COUNT + (__name__ == '__main__'))\nsend(len(helpers.__name__))\n",
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_what_an_import_binds(body: str, tmp_path: Path) -> None:
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "plain.py").write_text(f"def send(n):\n    print(n)\n{body}")
    done = subprocess.run([sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    expected = list(map(int, done.stdout.split()))
    assert expected
    run = predicted(tmp_path, f"def send(n):\n    dist.all_reduce(torch.ones(n))\n{body}")
    assert ([event.numel for event in run.collectives(0)], run.why) == (expected, "")
