"""The cheap tests on bytes that tell which files can matter, and which can import them, before anything is parsed."""

from __future__ import annotations

from ddp_audit.lazy_regex import lazy_compile

# Names, not stems: the stem "distributed" stands in most licence headers. Substring tests run at gigabytes per second, a
# regular expression over bytes about a hundred times slower.
_NAMES = (
    b"DistributedDataParallel",
    b"DistributedSampler",
    b"init_process_group",
    b"torch.distributed",
    b"torch import distributed",
    b"no_sync",
    b"require_backward_grad_sync",
    b"SyncBatchNorm",
    b"Accelerator(",
)
# A unit test, and one that speaks of several processes.
_TEST_FOLDERS = frozenset(["test", "tests"])
_RUNNERS = (b"pytest", b"unittest", b"absltest")
_SEVERAL = (b"world_size", b"spawn", b"torchrun", b"_rank", b"Distributed", b"multi_gpu", b"multigpu", b"_launcher")
PACKAGE = b"."  # stands for the package itself, which `from . import a` does not name

_WORD = lazy_compile(rb"[\w\x80-\xff]+")
_PARENTHESES = lazy_compile(rb"(?:[ \t\f]|\\\r?\n|\\\r)*\((?:[^()#]|#[^\r\n]*)*")
_TO_THE_END = lazy_compile(rb"(?:\\\r?\n|\\\r|[^\r\n])*")
_ONLY_DOTS = lazy_compile(rb"\bfrom(?:\s|\\)*\.[.\s\\]*import")


def mentions_distributed(data: bytes) -> bool:
    """Whether a file's bytes name something of distributed training."""
    return b"torch" in data and any(name in data for name in _NAMES)


def is_plain_test(shown: str, data: bytes) -> bool:
    """Whether a file that does not matter by itself is a unit test, or a helper of such, that starts no other process.

    A runner of unit tests runs it in one process, so what it leads to is seen there as no job of several ranks has it.
    """
    *folders, name = shown.split("/")
    named = name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
    if not named and not _TEST_FOLDERS.intersection(folders):
        return False
    if any(word in data for word in _SEVERAL):
        return False
    return any(word in data for word in _RUNNERS) or (named and b"def test_" in data and b"__main__" not in data)


def import_words(data: bytes) -> set[bytes]:
    """Every word of a file's import statements, and PACKAGE for an import by dots alone.

    Found without parsing: texts and comments that hold the word import give some more.
    """
    words: set[bytes] = set()
    ends = (b"\n", b"\r") if b"\r" in data else (b"\n",)
    at = data.find(b"import")
    while at >= 0:
        if _WORD.match(data, at + 6) or _WORD.match(data, max(0, at - 1), at):  # a part of another word
            at = data.find(b"import", at + 6)
            continue
        start = at
        while True:  # to the beginning of the logical line
            start = max(data.rfind(mark, 0, start) for mark in ends)
            if start <= 0 or data[max(0, start - 2) : start].rstrip(b"\r")[-1:] != b"\\":
                break
        inner = _PARENTHESES.match(data, at + 6) or _TO_THE_END.match(data, at + 6)
        end = inner.end() if inner else at + 6
        statement = data[start + 1 : end]
        words.update(_WORD.findall(statement))
        if _ONLY_DOTS.search(statement):
            words.add(PACKAGE)
        at = data.find(b"import", end)
    return words
