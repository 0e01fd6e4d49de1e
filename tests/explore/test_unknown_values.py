"""What is made of something that is not known is not known: no number is claimed for it, whatever the program does with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted

# U is a number from 1 on, T a text, L the words of a text: all of them are read from the environment of the run.
UNKNOWN = """
import bisect, copy, functools, itertools, json, math, random, re, sys, time
from collections import Counter, defaultdict, deque, namedtuple
from dataclasses import asdict, dataclass, replace
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, RandomSampler, Subset, TensorDataset, random_split
U = int(os.environ["U"])
T = os.environ["T"]
L = T.split()
P = namedtuple("P", "a b")
@dataclass
class D:
    a: int = 1
class Box:
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __bool__(self):
        return self.n > 1
def doubled(n):
    return n * 2
def held(module, key):
    module[key] = nn.Linear(2, 2)
    return module
def updated(module):
    module.update(json.loads(T))
    return module
def without(module, key):
    del module[key]
    return module
def words():
    yield from L
"""

NUMBERS = (
    "U", "U + 1", "1 + U", "-U", "U * 2", "U // 2", "U % 3", "2 ** U", "U << 1", "U | 1", "abs(U)", "round(U)", "int(U)", "int(T)", "int('12', U)",
    "int(float(T))", "divmod(U, 2)[0]", "pow(2, U)", "max(U, 3)", "min(3, U)", "max([U, 3])", "min([1], default=U)[0] if False else U", "sum([U, 1])",
    "sum([1, 2], U)", "max([1, 2], key=lambda n: n % U)", "math.ceil(U / 2)", "math.gcd(U, 4)", "int(math.sqrt(U))", "int(math.log2(U))", "math.prod([U, 2])",
    "int(U == 1) + 1", "int(U != 1) + 1", "int(U < 4) + 1", "int(1 <= U <= 4) + 1", "int([U] == [1]) + 1", "int((U, 1) < (2, 1)) + 1", "int(not U) + 1",
    "int(bool(U)) + 1", "int(U is None) + 1", "int(any([U, 0])) + 1", "int(all([U, 1])) + 1", "functools.reduce(lambda a, b: a + b, [1, U])",
    "doubled(U)", "(lambda n=U: n)()", "functools.partial(doubled, U)()", "Box(U).n", "len(Box(U))", "D(U).a", "D(a=U).a", "replace(D(), a=U).a", "asdict(D(U))['a']",
    "P(U, 1).a", "P(1, b=U)[1]", "P(1, 2)._replace(a=U).a", "getattr(Box(U), 'n')", "getattr(Box(3), T, 4)", "vars(Box(U))['n']",
    "[i for i in RandomSampler(range(4))][0] + 1", "[i for i in RandomSampler(range(4), num_samples=U)][0] + 1", "len(list(RandomSampler(range(9), num_samples=U)))",
    "{**{'a': 1}, **json.loads(T)}['a']", "len({**{'a': 1}, **json.loads(T)})", "{'a': 1, **json.loads(T), 'b': 2}.get('c', 4)", "int('b' in {'a': 1, **json.loads(T)}) + 1",
)  # fmt: skip
TEXTS = (
    "len(T)", "len(T + 'a')", "len('a' + T)", "len(T * 2)", "len('a' * U)", "len(T.upper())", "len(T.strip())", "len('a-b'.replace('-', T))", "len(T.replace('a', 'b'))",
    "len(f'{T}')", "len(f'{U}')", "len(f'{U:03d}')", "len('%d' % U)", "len('{}'.format(T))", "len(str(U))", "len(repr(T))", "T.count('a') + 1", "'abc'.count(T) + 1", "'abc'.find(T) + 2",
    "int(T.startswith('a')) + 1", "int('abc'.startswith(T)) + 1", "int('a' in T) + 1", "int(T in 'abc') + 1", "int(T == 'a') + 1", "int(T < 'b') + 1", "ord(T[0])", "len(T[1:])",
    "len('-'.join(L))", "len('-'.join(['a', T]))", "len('a,b'.split(T))", "len('abc'[:U])", "len(json.loads(T))", "json.loads(T)['n']", "len(json.dumps({'a': U}))", "len(json.dumps([T]))",
    "int(re.match(T, 'a') is None) + 1", "len(re.findall('a', T))", "len(os.path.join('a', T))", "len(open(T).read())", "len(open(T).readlines())",
)  # fmt: skip
CONTAINERS = (
    "len(L)", "len(L + [1])", "len([1] + L)", "len(L * 2)", "len([0] * U)", "len(L[1:])", "len([1, 2, 3][:U])", "len([1, 2, 3][U:])", "[1, 2, 3][U]", "(1, 2, 3)[U]", "[1, U][1]", "(U, 1)[0]",
    "{'a': U}['a']", "{1: 2, 3: 4}[U]", "{1: 2}.get(U, 3)", "{1: 2}.pop(U, 3)", "{1: 2}.setdefault(U, 3)", "{U: 2}[U]", "len({U, 2})", "len(set(L))", "len(set([U, 2]))", "len(frozenset(L))",
    "len(dict.fromkeys(L))", "len({n: 1 for n in L})", "len({n for n in L})", "len([n for n in L])", "len([n for n in range(U)])", "sum(1 for n in L)", "len(list(range(U)))",
    "len(range(U))", "len(range(0, 9, U))", "sum(range(U)) + 1", "len(list(L))", "len(tuple(L))", "len(sorted(L))", "len(list(reversed(L)))", "len(list(enumerate(L)))", "len(list(zip(L, L)))", "len(list(zip(L, [1, 2])))",
    "len(list(map(len, L)))", "len(list(filter(None, L)))", "len(list(filter(lambda n: n < U, [1, 2, 3])))", "len(list(filter(None, [U - 1, 1])))", "len(list(words()))", "sum(1 for _ in words())",
    "[1, 2, 3].index(U)", "[U, 1].index(1)", "[U, 1, 1].count(1)", "(U, 1).count(1)", "sorted([U, 2])[0]", "sorted([3, 1, 2], key=lambda n: n % U)[0]", "int(U in [1, 2]) + 1", "int(1 in [U, 2]) + 1", "int(U in {1, 2}) + 1", "int(U in {1: 2}) + 1",
    "Counter(L)['a'] + 1", "len(Counter(L))", "len(deque(L))", "len(deque([1, 2, 3], maxlen=U))", "defaultdict(int, {'a': U})['a']", "len(list(itertools.chain(L, [1])))", "len(list(itertools.product(L, [1, 2])))",
    "len(list(itertools.islice(range(9), U)))", "len(list(itertools.repeat(1, U)))", "len(list(itertools.combinations(range(5), U)))", "len(list(itertools.accumulate(L)))",
    "bisect.bisect([1, 2, 3], U) + 1", "len(copy.deepcopy(L))", "copy.deepcopy([U])[0]", "copy.copy({'a': U})['a']", "next(iter([U]))",
)  # fmt: skip
TENSORS = (
    "torch.ones(U).numel()", "torch.arange(U).numel()", "torch.arange(0, 9, U).numel()", "torch.ones(2, U).shape[1]", "torch.ones(4, 3).shape[U]", "torch.ones(4, 3).size(U)", "torch.tensor(L).numel()",
    "torch.ones(4, 6).view(U, -1).shape[0]", "torch.ones(4, 6).reshape(-1, U).shape[0]", "torch.ones(4)[:U].numel()", "torch.ones(9).split(U)[0].numel()", "len(torch.ones(9).split(U))", "len(torch.ones(9).chunk(U))",
    "torch.ones(2, 3).sum(U).numel()", "torch.cat([torch.ones(U), torch.ones(2)]).numel()", "torch.cat([torch.ones(2, 2)] * 2, dim=U).shape[0]", "torch.stack([torch.ones(U)]).numel()", "(torch.ones(U) + 1).numel()",
    "(torch.ones(U, 1) + torch.ones(3)).numel()", "(torch.ones(2, 3) @ torch.ones(3, U)).numel()", "torch.zeros_like(torch.ones(U)).numel()", "torch.ones(2, 3).flatten(U).dim()", "torch.ones(2, 3).transpose(0, U).shape[0]",
    "nn.Linear(U, 2).weight.numel()", "sum(p.numel() for p in nn.Linear(2, U).parameters())", "nn.Linear(2, U)(torch.ones(3, 2)).numel()", "nn.Conv2d(3, 8, U).weight.numel()", "nn.Embedding(U, 3).weight.numel()",
    "sum(p.numel() for p in nn.Sequential(*[nn.Linear(2, 2) for _ in L]).parameters())", "sum(p.numel() for p in nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), U).parameters())", "sum(p.numel() for p in nn.LSTM(2, 3, U).parameters())",
    "sum(p.numel() for p in nn.Sequential(*json.loads(T)).parameters())", "sum(p.numel() for p in nn.ModuleList(json.loads(T)).parameters())", "sum(p.numel() for p in nn.ModuleDict({T: nn.Linear(2, 2)}).parameters())",
    "sum(p.numel() for p in held(nn.ModuleDict(), T).parameters())", "sum(p.numel() for p in nn.ModuleList().extend(json.loads(T)).parameters())", "sum(p.numel() for p in updated(nn.ModuleDict()).parameters())",
    "sum(p.numel() for p in nn.ModuleList([json.loads(T)]).parameters())",
    "sum(p.numel() for p in without(nn.ModuleDict({'a': nn.Linear(2, 2), 'b': nn.ReLU()}), T).parameters())",
    "sum(p.numel() for p in without(nn.ModuleList([nn.Linear(2, 2), nn.ReLU()]), U).parameters())",
    "int(torch.ones(1).item())", "int(torch.randint(0, 9, (1,)))", "int(torch.ones(2).sum())", "len(torch.nonzero(torch.ones(4)))", "torch.ones(4)[torch.ones(4) > U].numel()", "int(torch.initial_seed())", "torch.cuda.device_count() + 1",
    "len(DataLoader(range(9), U))", "len(DataLoader(L, 2))", "len(DataLoader(range(9), batch_size=2, sampler=RandomSampler(L)))", "len(Subset(range(9), L))", "len(ConcatDataset([range(3), L]))", "len(TensorDataset(torch.ones(U)))",
    "len(random_split(range(9), [U, 9 - U])[0])", "len(random_split(L, [0.5, 0.5])[0])", "len(RandomSampler(range(9), num_samples=U))", "len(DistributedSampler(L))", "next(iter(DataLoader(range(9), batch_size=U))).numel()",
    "random.randint(1, 4)", "random.choice([1, 2])", "len(random.sample([1, 2, 3], U))", "int(time.time())", "os.getpid()", "len(os.listdir('.'))", "os.cpu_count()",
)  # fmt: skip
EXPRESSIONS = (*NUMBERS, *TEXTS, *CONTAINERS, *TENSORS)


@pytest.mark.parametrize("kinds", [NUMBERS, TEXTS, CONTAINERS, TENSORS], ids=["numbers", "texts", "containers", "tensors"])
def test_no_size_is_claimed_for_what_is_not_known(kinds: tuple[str, ...], tmp_path: Path) -> None:
    claimed = {}
    for number, expression in enumerate(kinds):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = predicted(folder, f"{UNKNOWN}dist.all_reduce(torch.ones({expression}))\ndist.barrier()\n")
        sent = [(event.op, event.numel) for event in run.collectives(0)]
        if sent not in ([("all_reduce", None), ("barrier", None)], [("all_reduce", None)], []) or (len(sent) < 2 and not run.why):
            claimed[expression] = sent, run.why
    assert claimed == {}
