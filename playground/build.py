"""Builds the playground: one folder of static files that audits a script in the browser, with nothing sent anywhere.

Pyodide comes from its npm package (`npm ci` in this folder), the auditor from this repository. Of the auditor's dependencies the
reading of a script needs none.
"""

from __future__ import annotations

import argparse
import shutil
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PAGE = ("index.html", "page.js", "worker.js", "auditing.py")
PACKAGES = (ROOT / "auditor" / "ddp_audit", ROOT / "rules" / "ddp_audit_rules")
# What a page cannot do: trace, serve editors and agents, look at machines.
LEFT_OUT = ("trace", "server", "agents", "preflight")
SUFFIXES = (".py", ".toml")
_TIME = (2020, 1, 1, 0, 0, 0)  # the same archive from the same sources


def archive(target: Path) -> None:
    """Write the auditor and its rules."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for package in PACKAGES:
            for path in sorted(package.rglob("*")):
                inside = path.relative_to(package)
                if path.suffix in SUFFIXES and inside.parts[0] not in LEFT_OUT:
                    entry = zipfile.ZipInfo(f"{package.name}/{inside.as_posix()}", _TIME)
                    packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def build(target: Path) -> None:
    """Make the folder anew."""
    pyodide = HERE / "node_modules" / "pyodide"
    if not pyodide.is_dir():
        raise SystemExit(f"no Pyodide: run npm ci in {HERE}")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in PYODIDE:
        shutil.copy(pyodide / name, target)
    for name in PAGE:
        shutil.copy(HERE / name, target)
    archive(target / "ddp_audit.zip")
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{target}: {len(list(target.iterdir()))} files, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=ROOT / "site" / "playground")
    build(parser.parse_args().target)
