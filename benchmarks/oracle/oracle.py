"""Hold both interpreters to CPython on random programs: `python benchmarks/oracle/oracle.py 1000`.

Prints how often each engine agrees with what CPython did to the end, ends early and says why, or disagrees, and the shortest
program of each kind of disagreement. Exits with 1 where an engine disagrees, with `--write` after writing `oracle.md`.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from oracle.compare import AGREES, SHORT, WRONG, Answer, Question, ask, rid_of_cause
from oracle.grammar import draw, draw_shaped
from oracle.shapes import shapes_of
from oracle.standin import Endless, run_ranks

WORLDS = (2, 3, 4, 8, 16)
_MOST_MEMORY = 8 << 30  # bytes, most of them stacks that are never touched
_PAGE = Path(__file__).resolve().parent / "oracle.md"


def judge(source: str, world_size: int) -> list[Answer]:
    """What the engines say of one program, held to CPython. An engine that fails counts as one that disagrees."""
    question = Question.of(source, world_size, run_ranks(source, world_size))
    try:
        return ask(question)
    except Exception as error:
        return [Answer("internal error", WRONG, f"{type(error).__name__}: {error}")]


def shrink(source: str, holds: Callable[[str], bool]) -> str:
    """Leave out lines, and blocks of lines, as long as `holds`."""
    lines = source.splitlines()
    size = max(len(lines) // 2, 1)
    while size:
        at = 0
        while at < len(lines):
            shorter = lines[:at] + lines[at + size :]
            if _still(shorter, holds):
                lines = shorter
            else:
                at += size
        size //= 2
    return "\n".join(lines) + "\n"


def _still(lines: Sequence[str], holds: Callable[[str], bool]) -> bool:
    source = "\n".join(lines) + "\n"
    try:
        compile(source, "program.py", "exec")
        return holds(source)
    except (SyntaxError, Endless, ValueError):
        return False


def main() -> int:
    """Draw, run, ask, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--world-size", type=int, choices=WORLDS, help="one world size in place of all by turns")
    parser.add_argument("--corpus", help="a folder of Python files: every second program has the shape of one of its functions")
    parser.add_argument("--show", type=int, default=3, help="kinds of disagreement of each engine to show a shrunken program of")
    parser.add_argument("--write", action="store_true", help="write the figures to oracle.md")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))  # a drawn program, or an engine, that grows without bound
    shapes = shapes_of(arguments.corpus) if arguments.corpus else []

    def program(seed: int) -> str:
        return draw_shaped(seed, shapes[seed // 2 % len(shapes)]) if shapes and seed % 2 else draw(seed)

    counts: Counter[tuple[str, str]] = Counter()
    kinds: Counter[Answer] = Counter()
    first: dict[Answer, tuple[int, int, Answer]] = {}
    skipped, began = 0, time.process_time()
    for number in range(arguments.programs):
        seed = arguments.seed + number
        world_size = arguments.world_size or WORLDS[number % len(WORLDS)]
        try:
            answers = judge(program(seed), world_size)
        except Endless:
            skipped += 1
            continue
        for answer in answers:
            counts[answer.engine, answer.verdict] += 1
            kind = rid_of_cause(answer)
            if answer.verdict != AGREES:
                kinds[kind] += 1
                first.setdefault(kind, (seed, world_size, answer))
    lines = _figures(arguments.programs - skipped, counts, kinds, first)
    lines.append(f"{time.process_time() - began:.1f} CPU s, {skipped} endless programs left out")
    print("\n".join(lines))
    _show(program, kinds, first, arguments.show)
    if arguments.write:
        command = f"python benchmarks/oracle/oracle.py {arguments.programs} --seed {arguments.seed}"
        command += f" --corpus DIR ({len(shapes):,} shapes)" if shapes else ""
        figures = "\n".join(lines)
        _PAGE.write_text(f"# The interpreters against CPython\n\n`{command}`\n\n```\n{figures}\n```\n", encoding="utf-8")
    return int(any(verdict == WRONG for _, verdict in counts))


def _figures(
    programs: int, counts: Counter[tuple[str, str]], kinds: Counter[Answer], first: dict[Answer, tuple[int, int, Answer]]
) -> list[str]:
    engines = sorted({engine for engine, _ in counts})
    lines = [f"{programs:,} programs", f"{'engine':<16}{AGREES:>10}{SHORT:>12}{WRONG:>11}"]
    lines += [f"{e:<16}{counts[e, AGREES]:>10,}{counts[e, SHORT]:>12,}{counts[e, WRONG]:>11,}" for e in engines]
    for verdict in (WRONG, SHORT):
        lines += ["", f"most frequent: {verdict}"]
        chosen = [(kind, count) for kind, count in kinds.most_common() if kind.verdict == verdict][:15]
        for kind, count in chosen:
            seed, world_size, _ = first[kind]
            lines.append(f"  {count:>6}  {kind.engine}: {kind.why} (seed {seed}, {world_size} ranks)")
    return lines


def _show(program: Callable[[int], str], kinds: Counter[Answer], first: dict[Answer, tuple[int, int, Answer]], most: int) -> None:
    for engine in sorted({kind.engine for kind in kinds}):
        for kind, _ in [pair for pair in kinds.most_common() if pair[0].engine == engine and pair[0].verdict == WRONG][:most]:
            seed, world_size, answer = first[kind]

            def holds(source: str, kind: Answer = kind, world_size: int = world_size) -> bool:
                return any(rid_of_cause(other) == kind for other in judge(source, world_size))

            print(f"\n--- {engine}, seed {seed}, {world_size} ranks: {answer.why}\n{shrink(program(seed), holds)}")


if __name__ == "__main__":
    sys.exit(main())
