"""The lowering of control flow: branches, loops, with and try. Each leaves the state as all ways through it leave it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.program import (
    contexts,
    contracts_reports,
    exits,
    guard_functions,
    iteration,
    names,
    unrolled,
)
from ddp_audit.program.differing import differs
from ddp_audit.program.functions import call_function
from ddp_audit.program.guards import NoSync
from ddp_audit.program.lists import after_a_loop, as_list
from ddp_audit.program.long_work import lets_main_first
from ddp_audit.program.lookup import full_name
from ddp_audit.program.meaning import is_kind, says
from ddp_audit.program.model import Branch, Caught, Guard, Item, Loop, LoopItem, TryItem
from ddp_audit.program.nodes import Check, Init, NoSyncBlock
from ddp_audit.program.operations import operation, two_views
from ddp_audit.program.slots import Slots
from ddp_audit.program.state import ClassInfo, FunctionInfo, merge_slots, merge_value
from ddp_audit.program.truths import asked
from ddp_audit.program.values import (
    ERROR,
    UNIFORM,
    Const,
    Expr,
    Func,
    Items,
    Obj,
    Taint,
    Unknown,
    Value,
    named,
    options,
    the_object,
    truth,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


MUTED_NESTING = 2  # loops within one another that are walked twice


def branch(lw: Lowering, node: ast.If) -> str | None:
    """An if statement: the arm that is known to be taken, else both."""
    guard_functions.check(lw, node.test, node.body)
    value = asked(lw, lw.eval(node.test), node.test)
    ending = next(
        (taken for taken, arm in ((True, node.body), (False, node.orelse)) if arm and ends_the_process(lw, arm[-1])), None
    )
    if ending is not None:
        number = lw.emit(node, Check(test=operation("not", value) if ending else value, raises=True))
        if number is not None:
            lw.program.node(number).text = f"if {lw.text(node.test)}"
    settled = lw.settled(node.test, value, node.body, node.orelse)
    if settled is not None and settled == ending and asks_the_size(value):
        settled = not ending  # as after an assert that fails: what would follow is audited, and DDP505 speaks of the check
    if settled is not None:
        passed_by = node.orelse if settled else node.body
        if passed_by and lw.known(value) is not None:
            first, last = lw.span(passed_by[0]), lw.span(passed_by[-1])
            lw.program.passed_by.add((first.path, first.line, last.end_line))
        return lw.run_block(node.body if settled else node.orelse)
    contracts_reports.note_choice(lw, node.test, value)
    return two_arms(lw, value, node.test, node.body, node.orelse, "if")


def asks_the_size(value: Value) -> bool:
    """Whether a condition is computed from the number of processes or of devices."""
    if not isinstance(value, Expr):
        return False
    return any(map(asks_the_size, value.args)) if value.args else value.op in ("world_size", "local_world_size", "device_count")


def asks_a_remainder(value: Value) -> bool:
    """Whether a condition asks what a division by the number of processes leaves."""
    if not isinstance(value, Expr):
        return False
    return (value.op == "%" and asks_the_size(value.args[1])) or any(map(asks_a_remainder, value.args))


def ends_the_process(lw: Lowering, node: ast.stmt) -> bool:
    """Whether a statement raises, or ends the process by a call: of sys.exit and its like, or of a function that ends with one."""
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    lw.muted += 1
    functions = options(lw.eval(node.value.func)) if isinstance(node.value.func, (ast.Name, ast.Attribute)) else ()
    lw.muted -= 1
    return any(is_kind(f, "ends-process") or (isinstance(f, Func) and _exits(lw, f.definition)) for f in functions)


def _exits(lw: Lowering, function: FunctionInfo) -> bool:
    """Whether the last statement of a function ends the process."""
    body = function.node.body
    last = body[-1] if isinstance(body, list) else None
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
        return isinstance(last, ast.Raise)
    return is_kind(full_name(lw, function.frame, last.value.func), "ends-process")


def two_arms(
    lw: Lowering, value: Value, test: ast.expr, then: Sequence[ast.stmt], orelse: Sequence[ast.stmt], via: str
) -> str | None:
    """Lowers both arms from the same state and joins what they leave behind."""
    before, depth = lw.state, len(lw.guards)
    outcome: list[tuple[Slots, str | None]] = []
    blocks: list[list[Item]] = []
    outer = lw.block
    arms = [(then, True), (orelse, False)]
    guards = [lw.guard(value, polarity, test, via) for _, polarity in arms]
    parts = [lw.guards_of(value, polarity, test, via) for _, polarity in arms]
    for (statements, _), own in zip(arms, parts, strict=True):
        lw.state, lw.block = before.fork(), []
        lw.guards += own
        left = lw.run_block(statements)
        del lw.guards[depth:]
        outcome.append((lw.state, left))
        blocks.append(lw.block)
    lw.block = outer
    if not lw.muted:
        lw.block.append(Branch(guards[0], blocks[0], blocks[1]))
    (state_then, left_then), (state_else, left_else) = outcome
    if left_then and left_else:
        lw.state = merge_slots(value, state_then, state_else)
        return left_then if left_then == left_else else "return"
    if left_then or left_else:
        lw.state = (state_else if left_then else state_then).commit()
        raised = "raise" in (left_then, left_else)
        lw.guards += [replace(guard, via="early-exit", raised=raised) for guard in parts[1 if left_then else 0]]
        return None
    if guards[0].against_default or guards[1].against_default:  # what follows is judged as the defaults have it
        kept, dropped = (state_else, state_then) if guards[0].against_default else (state_then, state_else)
        _keep_views(value, kept, dropped, state_then)
        lw.state = kept.commit()
        return None
    lw.state = merge_slots(value, state_then, state_else)
    return None


def _keep_views(test: Value, kept: Slots, dropped: Slots, then: Slots) -> None:
    """Notes of a module that the arm which is not taken compiles that this rests on the condition."""
    for slot in dropped.changed():
        mine, other = kept.get(slot), dropped.get(slot)
        if mine is not None and other is not None and two_views(mine, other) is not None:
            kept[slot] = merge_value(test, *((mine, other) if kept is then else (other, mine)))


def alternatives(lw: Lowering, bodies: Sequence[Sequence[ast.stmt]], node: ast.stmt) -> None:
    """Arms, one of which is taken by a condition that is not followed (match, except handlers)."""
    before, depth, outer = lw.state, len(lw.guards), lw.block
    arms: list[Slots] = []
    for body in bodies:
        lw.state = before.fork()
        left = lw.run_block(body)
        del lw.guards[depth:]
        if not left:
            arms.append(lw.state)
    lw.block = outer
    lw.state = before
    for arm in arms:
        merge_slots(Unknown(), arm, before.fork())


def for_loop(lw: Lowering, node: ast.For | ast.AsyncFor) -> str | None:
    """A for loop: its iterable once, its body in the steady state."""
    over = lw.eval(node.iter)
    if unrolled.is_unrolled(lw, node, over):
        unrolled.run(lw, node, over)
        return lw.run_block(node.orelse)
    element, count, taint = iteration.iterate(lw, node.iter, over)
    text = lw.text(node.iter)
    epochs = says(names.written(node.target), "epoch") or says(text, "epoch")
    leaf = f"loop:{node.iter.lineno:d}:{node.iter.col_offset}"
    repeat(lw, Loop(lw.span(node), "for", over, text, count, taint, epochs, leaf), node, element, None)
    if node.orelse:
        lw.run_block(node.orelse)
    return None


def while_loop(lw: Lowering, node: ast.While) -> str | None:
    """A while loop. `while True` has no condition; any other one guards its body."""
    once = lw.here.source.fact("as branch", node, unrolled.as_branch)
    if once is not None:
        return branch(lw, once)
    over_next = lw.here.source.fact("as for", node, unrolled.as_for)
    if over_next is not None:
        return for_loop(lw, over_next)
    guard_functions.check(lw, node.test, node.body)
    test = asked(lw, lw.eval(node.test), node.test)
    taint = UNIFORM if _is_endless(lw, test) else differs(test, lw.worlds)
    loop = Loop(lw.span(node), "while", test, lw.text(node.test), None, taint, says(lw.text(node.test), "epoch"))
    repeat(lw, loop, node, None, node.test)
    return None


def repeat(
    lw: Lowering, loop: Loop, node: ast.For | ast.AsyncFor | ast.While, element: Value | None, test: ast.expr | None
) -> None:
    """The body, walked once muted to see what it carries around, then for good."""
    _forget_counters(lw, node)
    before = lw.state
    lw.state = before.fork()
    if len(lw.loops) < MUTED_NESTING and not (lw.muted and len(lw.loops) >= 1):
        lw.muted += 1
        _body(lw, loop, node, element, test)
        lw.state = _widen(before, lw.state)
        if test is not None:  # what decides on another pass is what the body leaves
            over = asked(lw, lw.eval(test), test)
            loop = replace(loop, over=over, taint=UNIFORM if _is_endless(lw, over) else differs(over, lw.worlds))
        lw.muted -= 1
    outer, lw.block = lw.block, []
    ways = _body(lw, loop, node, element, test)
    body, lw.block = lw.block, outer
    if not lw.muted:
        lw.block.append(LoopItem(loop, body))
    surely = _endless(loop) or (_has_passes(loop) and not lw.here.source.fact("jumps", node, _jumps))
    lw.state = lw.state.commit() if surely else after_a_loop(lw, loop, lw.state, before.fork())
    exits.rejoin(lw, ways, "break")


def _body(
    lw: Lowering, loop: Loop, node: ast.For | ast.AsyncFor | ast.While, element: Value | None, test: ast.expr | None
) -> list[exits.Exit]:
    """One pass; the ways in which it was left."""
    depth = len(lw.guards)
    lw.loops.append(loop)
    if element is not None and not isinstance(node, ast.While):
        if isinstance(node.target, ast.Name):
            element = named(element, node.target.id)
        lw.assign(node.target, element)
    if test is not None:
        value = asked(lw, lw.eval(test), test)
        if not _is_endless(lw, value) and differs(value, lw.worlds):
            lw.guards.append(lw.guard(value, True, test, "while"))
    with exits.collected(lw, loop=True) as ways:
        lw.run_block(node.body)
    exits.rejoin(lw, ways, "continue")
    lw.loops.pop()
    del lw.guards[depth:]
    return ways


def _forget_counters(lw: Lowering, node: ast.For | ast.AsyncFor | ast.While) -> None:
    """Counters that the body advances have no known value inside the loop."""
    for target in lw.here.source.fact("counters", node, _counters):
        old = lw.eval(target)
        if as_list(old) is not None or (isinstance(old, Items) and old.kind in ("set", "dict")):
            continue  # `found += [batch]` is as good as extend()
        if isinstance(old, (Const, Unknown)) or (isinstance(old, Value) and not isinstance(old, Obj)):
            lw.assign(target, Unknown(taint=old.taint, text=names.written(target)))


def _counters(node: ast.AST) -> list[ast.Name | ast.Attribute]:
    advanced = [inner.target for inner in ast.walk(node) if isinstance(inner, ast.AugAssign)]
    return [target for target in advanced if isinstance(target, (ast.Name, ast.Attribute))]


def with_block(lw: Lowering, node: ast.With | ast.AsyncWith) -> str | None:
    """A with statement: gradients off, no_sync, or a context of no interest."""
    grad, depth = lw.grad, len(lw.no_sync)
    managers: list[tuple[Obj, ast.expr]] = []
    uneven = False
    for entry in node.items:
        context = lw.eval(entry.context_expr)
        uneven |= any(is_kind(option, "ends-uneven") for option in options(context))
        enter(lw, context, entry.context_expr)
        entered = contexts.entered(context)
        manager = the_object(context)
        if manager is not None and isinstance(manager.cls, ClassInfo) and manager.cls.find("__exit__"):
            managers.append((manager, entry.context_expr))
            entered = _call_method(lw, manager, "__enter__", entry.context_expr)
        if entry.optional_vars is not None:
            lw.assign(entry.optional_vars, entered)
    first = len(lw.program.nodes)
    waits = any(lets_main_first(entry.context_expr) for entry in node.items)
    lw.main_first += waits
    left = lw.run_block(node.body)
    lw.main_first -= waits
    start = len(lw.program.nodes)
    if uneven:
        for made in lw.program.nodes[first:start]:
            made.in_join = True
    for manager, expression in reversed(managers):
        _call_method(lw, manager, "__exit__", expression)
    for made in lw.program.nodes[start:]:
        made.in_finally = True
    lw.grad = grad
    del lw.no_sync[depth:]
    return left


def _call_method(lw: Lowering, target: Obj, method: str, node: ast.AST) -> Value:
    """Calls a method of an object of a project class by name."""
    found = target.cls.find(method)
    if found is None:
        return Unknown()
    holder, definition = found
    return call_function(lw, FunctionInfo(method, definition, holder.frame, holder), [], {}, node, receiver=target)


def enter(lw: Lowering, context: Value, node: ast.expr, condition: Guard | None = None) -> None:
    """Enters a context, under a condition where an exit stack was given it in an arm of one."""
    effect = contexts.context_effect(context)
    if effect in ("no_grad", "enable_grad"):
        lw.grad = effect == "enable_grad" if condition is None else None
    for option in options(context):
        if isinstance(option, Obj) and option.kind == "no-sync":
            wrapper, test, polarity = option.info
            if condition is not None and test is None:
                test, polarity = condition.test, condition.polarity
            lw.no_sync.append(NoSync(wrapper, lw.span(node), test, polarity))
            lw.emit(node, NoSyncBlock(target=wrapper))


def try_block(lw: Lowering, node: ast.Try) -> str | None:
    """A try statement: the body, then its handlers as alternatives, then the finally block.

    What a handler sets where the body makes the process group (rank 0 of 1, as a rule) holds in a run without others, which is not
    the one that is followed.
    """
    outer, lw.block = lw.block, []
    lw.tries.append(lw.span(node))
    start = len(lw.program.nodes)
    guarded = len(lw.guards)
    left = lw.run_block(node.body)
    if not left:
        left = lw.run_block(node.orelse)
    lw.tries.pop()
    body, lw.block = lw.block, []
    after = lw.state
    of_several = any(isinstance(made, Init) for made in lw.program.nodes[start:])
    raised = [guard for guard in lw.guards[guarded:] if guard.raised]
    if raised:  # who raised comes to the handlers and the finally block, and on from a handler that does not leave
        lw.guards[guarded:] = [guard for guard in lw.guards[guarded:] if not guard.raised]
    handlers: list[list[Item]] = []
    caught: list[Caught] = []
    depth = len(lw.guards)
    for handler in node.handlers:
        lw.state = after.fork()
        test = Unknown(taint=frozenset({ERROR}), text=f"except {ast.unparse(handler.type)}" if handler.type else "except")
        place, around = lw.span(handler), (len(lw.calls), len(lw.loops))
        lw.muted += 1  # the name of a class does nothing
        kinds = None if handler.type is None else lw.eval(handler.type)
        lw.muted -= 1
        lw.guards.append(Guard(test, True, place, test.text, "except", False, lw.program.world_size, *around))
        gone = lw.run_block(handler.body)
        caught.append(Caught(place, test.text, gone or "", kinds))
        del lw.guards[depth:]
        if not gone:
            if not of_several:
                merge_slots(Unknown(), after.fork(), lw.state)
            left = None
        handlers.append(lw.block)
        lw.block = []
    lw.state = after
    _in_finally(lw, node.finalbody)
    if all(one.left for one in caught):
        lw.guards += raised
    final, lw.block = lw.block, outer
    if not lw.muted:
        lw.block.append(TryItem(lw.span(node), body, handlers, final, caught))
    return left


def _in_finally(lw: Lowering, statements: Sequence[ast.stmt]) -> None:
    start = len(lw.program.nodes)
    lw.run_block(statements)
    for node in lw.program.nodes[start:]:
        node.in_finally = True


def _has_passes(loop: Loop) -> bool:
    """Whether a for loop goes over a number of elements that is known and not zero."""
    count = loop.count
    return isinstance(count, Const) and type(count.value) is int and count.value > 0 and count.default is None


def _jumps(node: ast.AST) -> bool:
    """Whether a pass of a loop may end before its last statement."""
    return any(isinstance(inner, (ast.Break, ast.Continue)) for inner in ast.walk(node))


def _is_endless(lw: Lowering, test: Value) -> bool:
    """Whether a while loop goes on forever, as far as its condition says."""
    return isinstance(test, Const) and test.default is None and truth(test, lw.worlds[0]) is True


def _endless(loop: Loop) -> bool:
    return loop.kind == "while" and isinstance(loop.over, Const)


def _widen(before: Slots, after: Slots) -> Slots:
    """The state at the head of a loop, above `before`: what the body changes is unknown there, with the taint of both."""
    widened = before.fork()
    for key in after.changed():
        old, new = before.get(key), after.get(key)
        if old is None or new is None or old is new or old == new:
            continue
        if isinstance(old, Const) and isinstance(new, (Const, Unknown)):
            taint: Taint = old.taint | new.taint
            widened[key] = Unknown(taint=taint, text=key[1])
        else:
            widened[key] = merge_value(Unknown(text=key[1]), old, new)
    return widened
