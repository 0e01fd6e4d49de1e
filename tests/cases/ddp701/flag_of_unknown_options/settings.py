"""Options that are made of the environment, so that nothing says what they are."""

import importlib
import os


def read():
    kind = getattr(importlib.import_module(os.environ.get("KIND_OF_OPTIONS", "types")), "SimpleNamespace")
    return kind(folder=os.environ.get("CASE_FOLDER", "none"))
