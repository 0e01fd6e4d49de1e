"""Worker under torchrun: runs case programs one after another, each in a child process of its own, and notes what each showed.

`worker.py FOLDER` runs what FOLDER/plan.json lists. torch is imported once and the children are forked, which saves most of the time
that a torchrun of each program would take. A program sees what torchrun gives it; its process group has keys of its own in the
launcher's store. Each rank writes FOLDER/NAME.RANK.json (see `record` of observer.py, and `code`, `error`) and NAME.RANK.out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.optim
import torch.nn.parallel
from observer import Observer, use_own_keys

DEADLINE = 20  # seconds after which a program is ended from outside


def child(step: dict[str, Any], folder: Path, rank: int) -> None:
    """Runs one program with its output in a file; the process ends here."""
    base = folder / f"{step['name']}.{rank}"
    output = os.open(f"{base}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ.update(step["environment"], CASE_FOLDER=step["folder"])
    program = Path(step["path"])
    os.chdir(program.parent)
    sys.argv = [str(program), *step["arguments"]]
    sys.path[0] = str(program.parent)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    use_own_keys(step["name"], host, port, rank, int(os.environ["WORLD_SIZE"]))
    observer = Observer(step["devices"])
    observer.install()
    code, error = run_program(program, observer, step["count"])
    facts = observer.record() | {"code": code, "error": error}
    Path(f"{base}.json").write_text(json.dumps(facts))
    if rank == 0 and observer.first_gradient:
        torch.save(torch.cat(observer.first_gradient), f"{base}.gradient")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_program(program: Path, observer: Observer, count: bool) -> tuple[int, str]:
    """Runs a program as `__main__`: its exit code, and the last line of the exception that left it."""
    # Kept to the end of the process: to free a process group waits for its threads, and these may wait for the interpreter.
    module = types.ModuleType("__main__")
    module.__file__ = str(program)
    sys.modules["__main__"] = module
    try:
        code = compile(program.read_text(encoding="utf-8"), str(program), "exec")
        if count:
            with observer.reductions:
                exec(code, vars(module))
        else:
            exec(code, vars(module))
    except SystemExit as left:
        number = left.code if isinstance(left.code, int) else int(left.code is not None)
        return number, f"SystemExit: {left.code}" if number else ""
    except BaseException as error:
        traceback.print_exc()
        return 1, "".join(traceback.format_exception_only(error)).strip()
    return 0, ""


def wait_for(pid: int) -> tuple[int, bool]:
    """The wait status of a child, and whether it had to be ended from outside."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), True


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    everyone = range(int(os.environ["WORLD_SIZE"]))
    for number, step in enumerate(json.loads((folder / "plan.json").read_text())):
        pid = os.fork()
        if pid == 0:
            child(step, folder, rank)
        code, stopped = wait_for(pid)
        written = folder / f"{step['name']}.{rank}.json"
        if not written.exists():  # a signal, or os._exit of the program's own
            written.write_text(json.dumps({"code": code, "error": "", "stopped": stopped}))
        store.set(f"case/{number}/{rank}", "ended")
        store.wait([f"case/{number}/{other}" for other in everyone])


if __name__ == "__main__":
    main()
