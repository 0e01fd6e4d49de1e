"""What a launcher starts in each rank in place of the user's script; alone in its folder, which is put on PYTHONPATH.

The worker's environment need not have ddp_audit: it is then taken from where this file lies.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2]

if importlib.util.find_spec("ddp_audit") is None:
    _spec = importlib.util.spec_from_file_location("ddp_audit", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)])
    assert _spec is not None and _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["ddp_audit"] = _module
    _spec.loader.exec_module(_module)

from ddp_audit.preflight.probe import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
