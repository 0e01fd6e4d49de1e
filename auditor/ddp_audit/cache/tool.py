"""What a kept result depends on besides the disk and the options: the tool, its rules and what it knows, as one hash."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_audit import __version__
from ddp_audit.cache import files
from ddp_audit.cache.files import cache_folder
from ddp_audit.cache.reports import SOURCES, installed_paths, tool_paths
from ddp_audit.source import freshness
from ddp_audit.source.dependency_log import digest_of


def key_of(folders: Sequence[str], *parts: str) -> str:
    """A key for `parts` with this tool, the rules of some folders, this Python and this working directory."""
    return _hash(__version__, sys.version, _state_of_tool(folders), str(Path.cwd()), *parts)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:40]


def _state_of_tool(folders: Sequence[str]) -> str:
    """A hash of the sources of the tool and of all rules, so that a change of one counts without a change of the version.

    Hashing them takes longer than a run from the cache may: the hash is kept by what stat tells of them. What is installed next to
    them may bring rules, whose distributions are in the hash with their names, that is their versions.
    """
    import ddp_audit
    import ddp_audit_rules

    roots = [*ddp_audit.__path__, *ddp_audit_rules.__path__, *folders]
    sources = {root: [path for path in tool_paths([root]) if path.endswith(SOURCES)] for root in roots}
    states = [(path, freshness.fingerprint_of(path)) for path in (*itertools.chain(*sources.values()), *installed_paths())]
    kept = cache_folder() / f"tool-{_hash(repr((list(sources), states)))}.json"
    try:
        return str(files.read(kept)["hash"])
    except files.DAMAGE:
        found = _hash_of(sources)
        files.write(kept, {"hash": found})
        return found


def _hash_of(sources: Mapping[str, Sequence[str]]) -> str:
    from ddp_audit.rule_loading import distributions_with_rules

    total = hashlib.sha256()
    for root, paths in sources.items():
        for path in paths:
            total.update(path.removeprefix(root).encode(errors="surrogateescape") + digest_of(path).encode())
    return total.hexdigest() + repr(distributions_with_rules())
