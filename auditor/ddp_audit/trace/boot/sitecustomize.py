"""Python imports this module at start-up in every process of a traced run, because its folder stands first on PYTHONPATH.

It starts the tracer and then runs the sitecustomize that it hides, where there is one.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    if "DDP_AUDIT_TRACE_DIR" not in os.environ:
        return
    try:
        if importlib.util.find_spec("ddp_audit") is None:  # the worker's environment does not have it
            folder = os.environ["DDP_AUDIT_TRACE_PACKAGE"]
            spec = importlib.util.spec_from_file_location(
                "ddp_audit", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
            )
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["ddp_audit"] = module
            spec.loader.exec_module(module)
        from ddp_audit.trace.worker import boot

        boot.start()
    except Exception as error:
        sys.stderr.write(f"ddp-audit: this process is not traced: {type(error).__name__}: {error}\n")


def _chain() -> None:
    others = [path for path in sys.path if os.path.abspath(path or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
_chain()
