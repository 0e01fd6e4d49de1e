"""What a call gives by its description: an argument, a constant, or nothing that is known."""

from __future__ import annotations

from ddp_audit.knowledge.functions import described, named, parameters, reasons, returned


def test_an_argument_comes_back() -> None:
    assert returned("tqdm.tqdm", ["items"], {"total": 3}) == ("items", None)
    assert returned("rich.progress.track", [], {"sequence": "items"}) == ("items", None)


def test_an_argument_that_is_not_given_does_not() -> None:
    assert returned("tqdm.tqdm", [], {"total": 3}) is None


def test_a_constant_comes_back() -> None:
    assert returned("torch.distributed.is_available", [], {}) == (None, True)
    assert returned("warnings.warn", ["text"], {}) == (None, None)


def test_nothing_is_said_of_others() -> None:
    assert returned("no.such.function", [1], {}) is None
    assert returned("numpy.save", ["path", 1], {}) is None  # a file: its contract says more


def test_each_description_gives_something_that_is_known() -> None:
    for name, gives in named("gives").items():
        assert gives in ("true", "none", *parameters(name)) or "file" in described()[name], name


def test_reasons_are_those_of_the_name_or_of_its_module() -> None:
    assert reasons("time.perf_counter") == {"clock"}
    assert reasons("numpy.random.rand") == {"random numbers"}
    assert reasons("random.Random.random") == {"random numbers"}
    assert reasons("os.listdir") == {"files"} and reasons("os.cpu_count") == frozenset()
