"""Draws random short programs, the same on both ranks or not."""

from __future__ import annotations

import random
from typing import Any

from predictor import Case, without
from real_ranks import WORLD_SIZE

DELAY_OPTIONS = ("delay_all_reduce_named_params", "param_to_hook_all_reduce")
HOOK_NAMES = ("allreduce_hook", "fp16_compress_hook", "noop_hook", "sum")

# What a program may hold beside the everyday calls, and how often it does.
FEATURES = {
    "partial": 0.3,  # outputs that depend on some of the parameters only
    "calls": 0.3,  # collectives of the user's own, failing forwards, heads applied past the wrapper
    "edits": 0.1,  # the program's own changes of gradients, unequal on the ranks, before a later average
    "changes": 0.15,  # freezing and replacing parameters
    "hook": 0.12,
    "moves": 0.12,
    "delay": 0.08,
    "ignored": 0.08,  # parameters and buffers that the wrapper leaves alone
    "failures": 0.12,  # exceptions in backward
    "orders": 0.3,  # parameters used in orders of their own, and more than once
    "groups": 0.1,  # further process groups, and more of the user's own collectives
}


def draw_case(choose: random.Random, length: int = 12, focus: str = "") -> Case:
    """A random case whose program is the same on all ranks. It has all features whose names `focus` lists with commas."""
    features = {name for name, chance in FEATURES.items() if choose.random() < chance or name in focus.split(",")}
    options: dict[str, Any] = {}
    kind = choose.choice(["plain", "plain", "find_unused", "static"])
    if kind == "find_unused":
        options["find_unused_parameters"] = True
    if kind == "static":
        options["static_graph"] = True
        if choose.random() < 0.2:
            options["find_unused_parameters"] = True
    if choose.random() < 0.4:
        options["bucket_cap_mb"] = choose.choice([0.00002, 0.0001, 0.001, 25])
    for name, chance in (("forward_sync_buffers", 0.25), ("broadcast_buffers", 0.25)):
        if choose.random() < chance:
            options[name] = choose.choice([True, False])
    if choose.random() < 0.1:
        options["init_sync"] = False
    if choose.random() < 0.25:
        options["gradient_as_bucket_view"] = True
    names = [f"p{i}" for i in range(choose.randint(1, 6))]
    if features & {"delay", "ignored"} and choose.random() < 0.8:
        names = [f"m.{name}" for name in names]
    model = draw_model(choose, names)
    if "moves" in features and options.get("gradient_as_bucket_view"):
        for param in model["params"]:
            param[2] = "float32"
    if "delay" in features:
        features -= {"moves"}
        draw_delay(choose, model, options)
    if "ignored" in features:
        every = [p[0] for p in model["params"]] + [b[0] for b in model["buffers"]]
        options["ignored"] = [name for name in every if choose.random() < 0.4]
    if "edits" in features:  # what is edited while something under way writes into it is a race
        features -= {"hook", "failures", "delay"}
        options = {k: v for k, v in options.items() if k not in (*DELAY_OPTIONS, "gradient_as_bucket_view")}
    program = draw_program(choose, length, names, features)
    if options.get("static_graph"):
        program = [op for op in program if op != ["reset"]]
    return Case(model, options, [program] * WORLD_SIZE)


def draw_join_case(choose: random.Random, focus: str = "", world_size: int = WORLD_SIZE) -> Case:
    """A case with blocks of uneven length under `join`; all its ranks come to its end, or raise."""
    case = draw_case(choose, 4, focus)
    options = {k: v for k, v in case.options.items() if k not in DELAY_OPTIONS}
    if options.get("static_graph"):
        options.pop("find_unused_parameters", None)
    programs: list[list[list[Any]]] = [[] for _ in range(world_size)]
    outputs = [0] * world_size
    order = choose.sample([p[0] for p in case.model["params"]], len(case.model["params"])) if choose.random() < 0.5 else None

    def iteration(rank: int, sync: bool) -> None:
        step = [["forward", "grad", True, order], ["backward", [outputs[rank]], False]]
        programs[rank] += step if sync else [["enter"], *step, ["exit"]]
        programs[rank] += [["step"], ["zero", True]] if sync and zeroing else []
        outputs[rank] += 1

    hook = choose.choice(HOOK_NAMES) if choose.random() < 0.2 else None
    zeroing = choose.random() < 0.7
    for rank in range(world_size):
        programs[rank] += [["hook", hook]] if hook else []
    # The first reduction of a static graph begins with a map, which no shadow sends.
    for _ in range(choose.choice([1, 2] if options.get("static_graph") else [0, 0, 1, 2])):
        for rank in range(world_size):
            iteration(rank, True)
    for _ in range(choose.choice([1, 1, 2])):
        initial, throw = choose.random() < 0.6, choose.random() < 0.15
        lengths = [choose.randint(0, 4) for _ in range(world_size)]
        syncs = [choose.random() < 0.8 or options.get("static_graph", False) for _ in range(5)]
        for rank in range(world_size):
            programs[rank].append(["join", initial, throw])
            for i in range(min(lengths) if throw else lengths[rank]):
                iteration(rank, syncs[i])
            if throw and lengths[rank] > min(lengths):
                programs[rank].append(["forward", "grad", True, order])  # raises, as a rank has run out of inputs
                continue
            programs[rank] += [["leave"], ["zero", True], ["skip", max(lengths) - lengths[rank]]]
            outputs[rank] += max(lengths) - lengths[rank]
        if throw and len(set(lengths)) > 1:
            break
        for _ in range(choose.choice([0, 1])):
            for rank in range(world_size):
                iteration(rank, True)
    return Case(case.model, options, programs)


def draw_wide_case(choose: random.Random, focus: str = "") -> Case:
    """A case on three or four ranks, the same on all, or of uneven inputs under `join`."""
    world_size = choose.choice([3, 4])
    if choose.random() < 0.5:
        return draw_join_case(choose, focus, world_size)
    case = draw_case(choose, 10, focus or choose.choice(["orders", "orders,partial", "orders,hook", "orders,failures"]))
    # Groups and messages are drawn for two ranks, and what is edited would not be exact.
    kept = [op for op in case.programs[0] if op[0] not in ("new_group", "on", "async", "wait", "pass", "swap", "edit")]
    kept = [[op[0], op[1][:1] * world_size, op[2]] if op[0] == "scatter_object_list" else op for op in kept]
    return Case(case.model, case.options, [kept] * world_size)


def draw_delay(choose: random.Random, model: dict[str, Any], options: dict[str, Any]) -> None:
    """Delays the reduction of some parameters. Their buffer is of float32, and the limit of their broadcasts an integer."""
    for param in model["params"]:
        param[2] = "float32"
    options["bucket_cap_mb"] = choose.choice([1, 25, 100])
    trainable = [p[0] for p in model["params"] if p[3]]
    delayed = [p[0] for p in model["params"] if choose.random() < 0.5]
    some_left = bool(delayed) and any(name not in delayed for name in trainable)
    if trainable and (some_left or choose.random() < 0.1):
        options["delay_all_reduce_named_params"] = delayed or trainable
        options["param_to_hook_all_reduce"] = choose.choice(trainable)


def draw_unequal_case(choose: random.Random, length: int = 8, focus: str = "") -> Case:
    """A random case in which rank 0 or 1 leaves out, adds or changes up to two operations of the common program."""
    case = draw_case(choose, length, focus)
    case.options.pop("init_sync", None)
    names = [p[0] for p in case.model["params"]]
    program = [list(operation) for operation in case.programs[0]]
    extra = {"eval": ("forward", "no_grad"), "eval_grad": ("forward", "grad"), "bypass": ("module", "no_grad")}
    for _ in range(choose.randint(1, 2)):
        at = choose.randrange(len(program))
        what = choose.choice(["drop", "drop", "eval", "eval_grad", "bypass", "barrier", "all_reduce", "flag", "used", "group"])
        if what == "drop":
            program = without(program, at) or program
        elif what == "used" and program[at][0] == "forward":
            program[at] = [*program[at][:3], [n for n in names if choose.random() < 0.6] or names[:1]]
        elif what == "flag":
            program.insert(at, ["flag", choose.random() < 0.5])
        elif what == "group":
            ranks = choose.choice([[0], [1], None])
            program.insert(
                at, choose.choice([["new_group", ranks, False], ["new_group", ranks, True], ["pass", 3, "float32", 0, 0]])
            )
        elif what in ("barrier", "all_reduce"):
            program.insert(at, ["barrier"] if what == "barrier" else ["all_reduce", choose.choice([1, 3, 64]), "float32", "SUM"])
        else:
            extra = {"eval": ("forward", "no_grad"), "eval_grad": ("forward", "grad"), "bypass": ("module", "no_grad")}.get(what)
            if extra is not None:
                program = with_output(program, at, [*extra, False, None])
    ending: list[list[Any]] = choose.choice(
        [[], [["barrier"]], [["all_reduce", 1, "float32", "SUM"], ["barrier"]], [["new_group", None, choose.random() < 0.5]]]
    )
    other = choose.randrange(2)
    programs = [[*case.programs[0], *ending], [*case.programs[0], *ending]]
    programs[other] = [*program, *ending]
    return Case(case.model, case.options, programs)


def with_output(program: list[list[Any]], at: int, operation: list[Any]) -> list[list[Any]]:
    """The program with one more forward; later outputs are renumbered."""
    number = sum(op[0] in ("forward", "module", "fail") for op in program[:at])
    out = []
    for op in program:
        if op[0] == "backward":
            op = ["backward", [w + (w >= number) for w in op[1]], *op[2:]]
        elif op[0] in ("extend", "autograd_grad"):
            op = [op[0], op[1] + (op[1] >= number), *op[2:]]
        out.append(op)
    return [*out[:at], operation, *out[at:]]


def draw_model(choose: random.Random, names: list[str]) -> dict[str, Any]:
    shapes = [[1], [3], [2, 4], [16], [5, 5], [2, 2, 8], []]
    mixed = choose.random() < 0.2
    params = []
    for name in names:
        dtype = choose.choice(["float32", "float64"]) if mixed else "float32"
        params.append([name, choose.choice(shapes), dtype, choose.random() > 0.1])
    if not any(p[3] for p in params) and choose.random() < 0.8:
        params[0][3] = True
    buffers = [
        [f"b{i}", choose.choice([1, 4, 7]), choose.choice(["float32", "int64"])] for i in range(choose.choice([0, 0, 1, 2, 3]))
    ]
    return {"params": params, "buffers": buffers}


def draw_call(choose: random.Random, program: list[list[Any]], made: list[list[int] | None], works: int) -> int:
    """Appends a collective of the user's own to the program; returns how many handles it makes."""
    if works and choose.random() < 0.4:
        number = choose.randrange(works)
        if ["wait", number] not in program:  # a message that is waited for twice never comes again
            program.append(["wait", number])
        return 0
    number = choose.randrange(len(made)) if made and choose.random() < 0.6 else None
    members = (made[number] if number is not None else None) or [0, 1]
    numel, dtype = choose.choice([1, 3, 8, 64]), choose.choice(["float32", "float64", "int64"])
    root, op = choose.choice(members), choose.choice(["SUM", "MAX", "MIN"])
    text = choose.choice(["", "text", "a longer text than that"])
    calls: list[list[Any]] = [
        ["all_reduce", numel, dtype, op],
        ["broadcast", numel, dtype, root],
        ["all_gather", numel, dtype],
        ["all_gather_single", numel, dtype],
        ["reduce_scatter_single", numel, dtype, op],
        ["all_to_all_single", numel, dtype],
        ["reduce", numel, dtype, root],
        ["gather", numel, dtype, root],
        ["scatter", numel, dtype, root],
        ["barrier"],
        [
            "coalesced",
            [choose.choice([1, 3, 8]) for _ in range(choose.randint(1, 3))],
            dtype,
            op,
            choose.choice(["manager", "function"]),
        ],
    ]
    blocking: list[list[Any]] = [
        ["all_gather_object", text],
        ["broadcast_object_list", [text, 3], root],
        ["gather_object", text, root],
        ["scatter_object_list", [text] * len(members), root],
    ]
    pairs: list[list[Any]] = [["pass", numel, dtype, choose.randrange(2), choose.choice([0, 0, 5])], ["swap", numel, dtype]]
    call = choose.choice(calls + blocking + ([] if number is not None else pairs))
    is_async = call in [*calls, pairs[0]] and choose.random() < 0.3
    if is_async:
        call = ["async", call]
    program.append(call if number is None else ["on", number, call])
    return int(is_async)


# What a feature adds to the actions, in the order in which they are drawn from.
_ACTIONS = {
    "calls": ["fail", "extend", "autograd_grad", "barrier", "all_reduce", "all_gather_object"],
    "groups": ["new_group", "group_call", "group_call", "group_call"],
    "edits": ["edit", "edit"],
    "changes": ["freeze", "replace"],
    "moves": ["assign", "move", "move"],
    "failures": ["reset"],
    "hook": ["hook"],
}


def draw_program(choose: random.Random, length: int, names: list[str], features: set[str]) -> list[list[Any]]:
    """Operations of one rank. Backward passes choose among the outputs that exist and are not freed yet."""
    program: list[list[Any]] = []
    live: list[int] = []  # outputs that a backward may still start from
    outputs = 0
    made: list[list[int] | None] = []  # the ranks of the groups made so far
    works = 0
    partial = "partial" in features

    def forward(name: str = "forward", mode: str | None = None) -> None:
        nonlocal outputs
        mode = mode or choose.choice(["grad"] * 5 + ["no_grad", "no_grad", "inference"])
        used = None
        if partial and choose.random() < 0.4:
            used = [n for n in names if choose.random() < 0.6] or names[:1]
        if "orders" in features and choose.random() < 0.7:
            used = choose.sample(names if used is None else used, len(names if used is None else used))
            used += choose.sample(used, choose.randint(0, len(used)))  # used again
        program.append([name, mode, choose.random() < 0.75, used])
        if mode == "grad":
            live.append(outputs)
        outputs += 1

    def backward() -> None:
        if not live:
            return
        which = [live[-1]] if choose.random() < 0.6 else sorted(choose.sample(live, choose.randint(1, min(3, len(live)))))
        retain = choose.random() < 0.2
        if "failures" in features and choose.random() < 0.25:
            program.append(["backward", which, retain, choose.choice(names)])
            if choose.random() < 0.5:
                program.append(["reset"])
        else:
            program.append(["backward", which, retain])
        if not retain:
            for i in which:
                live.remove(i)

    common = ["forward"] * 5 + ["backward"] * 5 + ["iteration"] * 4 + ["module", "flag", "enter", "exit", "step", "zero"]
    common += [action for feature, actions in _ACTIONS.items() if feature in features for action in actions]
    if "hook" in features and choose.random() < 0.7:
        program.append(["hook", choose.choice(HOOK_NAMES)])
    while len(program) < length:
        action = choose.choice(common)
        if action == "forward":
            forward()
        elif action == "module":
            forward("module")
        elif action == "backward":
            backward()
        elif action == "iteration":
            forward(mode="grad")
            backward()
            if choose.random() < 0.5:
                program.extend([["step"], ["zero", True]])
        elif action == "fail":
            program.append(["fail", choose.choice(["grad", "no_grad"])])
            outputs += 1
        elif action in ("extend", "autograd_grad"):
            if live and live[-1] == outputs - 1:
                program.append([action, live[-1], *([names[: choose.randint(1, 3)]] if action == "extend" else [])])
        elif action in ("assign", "move"):
            live.clear()  # graphs from before are not modelled
            program.append([action] if action == "assign" else [action, choose.choice(["float32", "float64"])])
        elif action == "new_group":
            made.append(choose.choice([None, [0, 1], [0], [1]]))
            # Local synchronization needs all ranks to be members, of this group and of equally many others.
            symmetric = all(ranks in (None, [0, 1]) for ranks in made)
            program.append(["new_group", made[-1], symmetric and choose.random() < 0.2])
        elif action == "group_call":
            works += draw_call(choose, program, made, works)
        elif action == "edit":
            program += [["edit"]] if program.count(["edit"]) < 3 else []  # more would not be exact in float32
        else:
            program.append([action, *_arguments(choose, action, names)])
    return program


def _arguments(choose: random.Random, action: str, names: list[str]) -> list[Any]:
    """What an operation is given that depends on nothing but chance."""
    match action:
        case "all_reduce":
            return [3, "float32", choose.choice(["SUM", "MAX"])]
        case "all_gather_object":
            return ["text"]
        case "freeze":
            return [choose.choice(names), choose.random() < 0.4]
        case "replace":
            return [choose.choice(names)]
        case "hook":
            return [choose.choice(HOOK_NAMES)]
        case "flag":
            return [choose.random() < 0.5]
        case "zero":
            return [choose.random() < 0.7]
        case _:
            return []
