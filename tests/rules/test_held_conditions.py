"""Where a condition or a call is kept does not matter: rank 0 alone comes to a barrier (DDP201), or all ranks do."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import collections, logging, threading, types, typing\nfrom collections import namedtuple\nfrom typing import NamedTuple\n"
    "dist.init_process_group('gloo')\nrank = dist.get_rank()\nvalue = os.environ.get('MODE')\n"
)
# {} is what decides: of the rank in the bad programs, equal on all ranks in the others.
HELD = {
    "any of two": "if any([{}, False]):\n    dist.barrier()\n",
    "any of a tuple": "flags = ({},)\nif any(flags):\n    dist.barrier()\n",
    "not all": "if not all([not ({}), True]):\n    dist.barrier()\n",
    "all in a function": "def due(a, b):\n    return all((a, b))\nif due({}, True):\n    dist.barrier()\n",
    "any in a ternary": "chief = 1 if any([{}]) else 0\nif chief:\n    dist.barrier()\n",
    "argparse.Namespace": "import argparse\nargs = argparse.Namespace(lead={})\nif args.lead:\n    dist.barrier()\n",
    "namespace in a namespace": "a = types.SimpleNamespace(b=types.SimpleNamespace(lead={}))\nif a.b.lead:\n    dist.barrier()\n",
    "namespace that is set": "a = types.SimpleNamespace()\na.lead = {}\nif a.lead:\n    dist.barrier()\n",
    "namespace given to a function": "def f(a):\n    if a.lead:\n        dist.barrier()\nf(types.SimpleNamespace(lead={}))\n",
    "namespace from a function": "def f():\n    return types.SimpleNamespace(n=1, lead={})\nif f().lead:\n    dist.barrier()\n",
    "named tuple by keyword": "P = namedtuple('P', ['n', 'lead'])\np = P(n=1, lead={})\nif p.lead:\n    dist.barrier()\n",
    "named tuple unpacked": "P = namedtuple('P', 'lead n')\nlead, n = P({}, 1)\nif lead:\n    dist.barrier()\n",
    "named tuple by place": "P = collections.namedtuple('P', 'n, lead')\np = P(1, {})\nif p[1]:\n    dist.barrier()\n",
    "named tuple with a default": "P = namedtuple('P', 'n lead', defaults=[{}])\nif P(3).lead:\n    dist.barrier()\n",
    "NamedTuple with a method": (
        "class P(NamedTuple):\n    n: int\n    lead: bool\n    def ask(self):\n        return self.lead\n"
        "if P(1, {}).ask():\n    dist.barrier()\n"
    ),
    "NamedTuple unpacked": "class P(typing.NamedTuple):\n    lead: bool\n    n: int\na, b = P(n=1, lead={})\nif a:\n    dist.barrier()\n",
    "length of a chosen list": "names = ['a', 'b'] if {} else []\nif len(names) == 2:\n    dist.barrier()\n",
    "set that is filled": "roles = set()\nif {}:\n    roles.add('lead')\nif 'lead' in roles:\n    dist.barrier()\n",
    "set of a display": "roles = {{'worker'}}\nif {}:\n    roles.add('lead')\nif 'lead' not in roles:\n    pass\nelse:\n    dist.barrier()\n",
    "event in a function": "def f(e):\n    if e.is_set():\n        dist.barrier()\ne = threading.Event()\nif {}:\n    e.set()\nf(e)\n",
    "event on self": (
        "class A:\n    def __init__(self):\n        self.go = threading.Event()\n    def tell(self, due):\n        if due:\n"
        "            self.go.set()\na = A()\na.tell({})\nif a.go.is_set():\n    dist.barrier()\n"
    ),
    "level of a logger": (
        "logger = logging.getLogger(__name__)\nlevel = logging.INFO if {} else logging.WARNING\nlogger.setLevel(level)\n"
        "if logger.isEnabledFor(logging.INFO):\n    dist.barrier()\n"
    ),
    "level of a logger in two arms": (
        "if {}:\n    logging.getLogger('a').setLevel('DEBUG')\nelse:\n    logging.getLogger('a').setLevel('ERROR')\n"
        "if logging.getLogger('a').getEffectiveLevel() <= 20:\n    dist.barrier()\n"
    ),
    "__bool__": "class A:\n    def __init__(self, x):\n        self.x = x\n    def __bool__(self):\n        return self.x\nif A({}):\n    dist.barrier()\n",
    "__len__": (
        "class A:\n    def __init__(self, x):\n        self.x = x\n    def __len__(self):\n        return 1 if self.x else 0\n"
        "a = A({})\nif not a:\n    pass\nelse:\n    dist.barrier()\n"
    ),
    "__bool__ by bool()": "class A:\n    def __init__(self, x):\n        self.x = x\n    def __bool__(self):\n        return self.x\nlead = bool(A({}))\nif lead:\n    dist.barrier()\n",
    "hook of a chosen list": "def f():\n    dist.barrier()\nhooks = [f] if {} else []\nfor hook in hooks:\n    hook()\n",
    "hook that is added": "hooks = []\nif {}:\n    hooks.append(dist.barrier)\nfor hook in hooks:\n    hook()\n",
    "second hook of a list": "def f(due):\n    pass\ndef g(due):\n    if due:\n        dist.barrier()\nfor hook in [f, g]:\n    hook({})\n",
    "one of two functions": "def f():\n    dist.barrier()\ndef g():\n    pass\n[g, f][int({})]()\n",
    "table by truth": "def f():\n    dist.barrier()\ntable = {{True: f, False: lambda: None}}\ntable[bool({})]()\n",
    "while that breaks": "while {}:\n    dist.barrier()\n    break\n",
    "comprehension of nothing": "def f(n):\n    if {}:\n        dist.barrier()\n[f(n) for n in range(2)]\n",
    "rank of the world": "lead = dist.get_rank(dist.group.WORLD) == 0 and ({})\nif lead:\n    dist.barrier()\n",
}
OF_ALL = {name: text for name, text in HELD.items() if name != "rank of the world"}


@pytest.mark.parametrize("text", HELD.values(), ids=HELD)
def test_a_condition_of_the_rank_is_found_wherever_it_is_kept(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(findings("DDP201", audited(tmp_path, START + text.format("rank == 0")))) == 1


@pytest.mark.parametrize("text", OF_ALL.values(), ids=OF_ALL)
def test_a_condition_that_is_equal_on_all_ranks_is_left_alone(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not findings("DDP201", audited(tmp_path, START + text.format("value == 'all'")), "possible")


LOOK_ALIKES = {
    "an event that another thread sets": "e = threading.Event()\nthreading.Thread(target=e.set).start()\nif e.is_set():\n    dist.barrier()\n",
    "a set that has it on all ranks": "s = {'a'}\nif rank == 0:\n    s.add('b')\nif 'a' in s:\n    dist.barrier()\n",
    "another field": "p = types.SimpleNamespace(lead=rank == 0, go=True)\nif p.go:\n    dist.barrier()\n",
    "another place": "P = namedtuple('P', 'lead go')\nlead, go = P(rank == 0, True)\nif go:\n    dist.barrier()\n",
    "another logger": "logging.getLogger('a').setLevel(10 if rank == 0 else 40)\nif logging.getLogger('b').isEnabledFor(20):\n    dist.barrier()\n",
    "a level that all have": "log = logging.getLogger('a')\nlog.setLevel(10 if rank == 0 else 20)\nif log.isEnabledFor(30):\n    dist.barrier()\n",
    "both functions": "def f():\n    dist.barrier()\ndef g():\n    dist.barrier()\n[f, g][int(rank == 0)]()\n",
    "hook of both arms": "hooks = []\nif rank == 0:\n    hooks.append(dist.barrier)\nelse:\n    hooks.append(dist.barrier)\nfor hook in hooks:\n    hook()\n",
    "any that is true": "if any([rank == 0, True]):\n    dist.barrier()\n",
    "all that is true of one": "if all([rank >= 0]):\n    dist.barrier()\n",
}


@pytest.mark.parametrize("text", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_look_alikes_are_left_alone(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not findings("DDP201", audited(tmp_path, START + text))
