"""`torchrun .. -m ddp_audit.trace [--directory DIR] SCRIPT ARGS`: runs a script, or with `-m` a module, with this rank traced.

For launchers that cannot be wrapped. Every rank writes its own file into DIR (default `ddp-trace`, or DDP_AUDIT_TRACE_DIR).
DDP_AUDIT_NATIVE=off records with the Python kernel even where the native one is built.
"""

from __future__ import annotations

import os
import runpy
import sys

from ddp_audit.trace.worker import boot, layout, native

_USAGE = "usage: torchrun ... -m ddp_audit.trace [--directory DIR] (SCRIPT | -m MODULE) [ARGS ...]"
DEFAULT_DIRECTORY = "ddp-trace"


def main() -> None:
    """Never returns a code of its own: the script's exit is this program's. Exits with 2 where there is nothing to run."""
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(_USAGE)
        return
    directory = os.environ.get(layout.ENV_DIRECTORY, DEFAULT_DIRECTORY)
    if words and words[0].startswith("--directory"):
        option, equals, given = words.pop(0).partition("=")
        if option != "--directory" or not (equals or words):
            sys.exit(_fail(_USAGE))
        directory = given if equals else words.pop(0)
    is_module = bool(words) and words[0] == "-m"
    if is_module:
        words.pop(0)
    if not words:
        sys.exit(_fail(_USAGE))
    if not is_module and not os.path.exists(words[0]):
        sys.exit(_fail(f"ddp-audit: {words[0]}: no such file"))
    mode = os.environ.get(layout.ENV_NATIVE, native.AUTO)
    if mode not in native.MODES:
        sys.exit(_fail(f"ddp-audit: {layout.ENV_NATIVE} is auto, on or off, not '{mode}'"))
    os.environ[layout.ENV_DIRECTORY] = os.path.abspath(directory)
    os.environ.setdefault(layout.ENV_SOLO, str(os.getppid()))
    boot.start()
    sys.argv = words
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def _fail(text: str) -> int:
    print(text, file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
