"""What the code of the files read says, where the nodes of a program do not keep it."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from ddp_audit.findings import Span
from ddp_audit.program.code import (
    arms_around,
    assigned_at,
    calls_of,
    calls_of_kind,
    calls_with,
    code_at,
    dotted,
    enters,
    function_at,
    hints_at,
    is_given,
    mentions,
    speaks_of,
    stored_within,
    texts_in,
    with_its_condition,
    written,
)
from ddp_audit.program.model import Program

Lowered = Callable[..., Program]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("model.no_sync_bn = 1\n", True),
        ("from lib import convert_sync_bn as c\n", True),
        ("options = {'sync_bn': True}\n", True),
        ("parser.add_argument('--sync_bn')\n", True),
        ("def f(*, sync_bn=None): ...\n", True),
        ("# sync_bn\n", False),
        ("print('no sync_bn here')\n", False),
    ],
)
def test_a_name_counts_and_a_comment_or_sentence_does_not(lowered: Lowered, text: str, answer: bool) -> None:
    assert speaks_of(lowered(text, head=""), "sync_bn") is answer


def test_calls_are_found_by_the_ends_of_their_names(lowered: Lowered) -> None:
    program = lowered("import random\nstate = random.getstate()\nother.getstate()\nlosses[0].backward()\nset_seed(3)\n", head="")
    assert [call.line for call in calls_of(program, "random.getstate")] == [2]
    assert [call.line for call in calls_of(program, "getstate")] == [2, 3]
    assert [call.line for call in calls_of(program, "backward")] == [4]
    assert not calls_of(program, "ward"), "half a name is none"
    assert [call.line for call in calls_with(program, "seeds")] == [5]
    assert [call.line for call in calls_of_kind(program, "reads-random-state")] == [2]
    assert hints_at(program, "loss") is False and hints_at(program, "draws") and hints_at(program, "seeds", "train.py")


@pytest.mark.parametrize(
    "text",
    [
        "f(switch=False)\n",
        "def f(a, switch=False): ...\n",
        "def f(*, switch=False): ...\n",
        "switch = False\n",
        "config.switch: bool = False\n",
        "options = {'switch': False, **other}\n",
    ],
)
def test_a_constant_that_a_name_gets(lowered: Lowered, text: str) -> None:
    program = lowered(text, head="")
    assert is_given(program, "switch", False) and is_given(program, "switch")
    assert not is_given(program, "switch", True) and not is_given(program, "other", False)


def test_what_a_with_statement_enters(lowered: Lowered) -> None:
    program = lowered("with torch.device('cuda'), lock as held:\n    pass\n", head="")
    assert enters(program, "device") and enters(program, "lo") and not enters(program, "held")


def test_places_of_a_name(lowered: Lowered) -> None:
    program = lowered("def set_epoch(n): ...\nset_epoch(1)\nsampler.set_epoch\ngetattr(sampler, 'set_epoch')\n", head="")
    assert [one.line for one in mentions(program, "set_epoch")] == [2, 3, 4]


def test_arms_stand_innermost_first_and_end_at_the_function(lowered: Lowered) -> None:
    program = lowered(
        "if a:\n"
        "    def f():\n"
        "        for x in y:\n"
        "            if b:\n"
        "                pass\n"
        "            elif c:\n"
        "                work()\n"
        "        try:\n"
        "            pass\n"
        "        except E:\n"
        "            again()\n"
        "        finally:\n"
        "            end()\n"
        "else:\n"
        "    other()\n",
        head="",
    )

    def around(line: int) -> list[tuple[str, str]]:
        return [(type(arm.statement).__name__, arm.part) for arm in arms_around(program, "train.py", line)]

    assert around(7) == [("If", "body"), ("If", "orelse"), ("For", "body")]
    assert around(11) == [("Try", "handlers")] and around(13) == [("Try", "finalbody")]
    assert around(15) == [("If", "orelse")] and around(4) == [("For", "body")] and around(1) == []
    function = function_at(program, "train.py", 11)
    assert function is not None and function.name == "f" and function_at(program, "train.py", 15) is None


def test_the_variable_that_gets_what_a_call_returns(lowered: Lowered) -> None:
    program = lowered("one = make()\ntwo: Any = make()\nthree, four = make()\nmake()\n", head="")
    calls = [call.source.span(call.node) for call in calls_of(program, "make")]
    assert [assigned_at(program, span) for span in calls] == ["one", "two", "", ""]
    assert isinstance(code_at(program, calls[0], ast.Call), ast.Call) and code_at(program, calls[0], ast.Name) is None


def test_what_is_stored_on_some_lines(lowered: Lowered) -> None:
    program = lowered("a = 1\nfor b in x:\n    c += 1\n    if (d := b):\n        e.f = d\n", head="")
    assert stored_within(program, "train.py", 2, 5) == {"b", "d"}


def test_a_condition_goes_with_the_one_statement_that_it_holds(lowered: Lowered) -> None:
    program = lowered("if a:\n    end()\nif b:\n    end()\nelse:\n    pass\nend()\n", head="")
    first, second, third = (call.source.span(call.node) for call in calls_of(program, "end"))
    assert with_its_condition(program, first) == Span("train.py", 1, 1, 2, first.end_column)
    assert with_its_condition(program, second) == second and with_its_condition(program, third) == third


def test_names_and_texts(lowered: Lowered) -> None:
    program = lowered("self.loader.sampler\nf('out of memory')[0].x\n", head="")
    names = [dotted(one.node) for one in written(program, ast.Attribute, "self")]
    assert names[:2] == ["self.loader.sampler", "self.loader"] and names[-1] == ""
    assert "out of memory" in set(texts_in(one.node for one in written(program, ast.Constant)))
