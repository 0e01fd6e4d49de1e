"""The extension for VS Code: its own tests under node, and that it says what the server and the project's files say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit import __version__

EXTENSION = Path(__file__).parents[2] / "editors" / "vscode"
MANIFEST = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))


def test_the_manifest() -> None:
    settings = MANIFEST["contributes"]["configuration"]["properties"]
    assert MANIFEST["version"] == __version__
    readme = (EXTENSION / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in settings)
    assert ".svg" not in readme, "the marketplace refuses such pictures, and so does vsce"
    for name in MANIFEST["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"]:
        assert settings[name]["scope"] == "machine", f"a workspace could set {name}"
    source = (EXTENSION / "src" / "extension.ts").read_text(encoding="utf-8")
    assert all(f'"{one["command"]}"' in source for one in MANIFEST["contributes"]["commands"])


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm on the PATH")
@pytest.mark.skipif(not (EXTENSION / "node_modules").is_dir(), reason="the extension is not installed: make vscode")
def test_the_bundled_extension_against_the_real_server(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("ddp-audit")
    environment = {**os.environ, "DDP_AUDIT": str(program)}
    done = subprocess.run(["npm", "test"], cwd=EXTENSION, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "# fail 0" in done.stdout and "# pass 0" not in done.stdout
