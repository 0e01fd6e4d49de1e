"""A training of a few tiny steps, in which rank RANK has the fault KIND in its sixth. For fault_matrix.py and many_ranks.py.

The moment of the fault goes into the file STAMP.
"""

import ctypes
import datetime
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KIND, WHO, STAMP = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
HOURS = 3600
MOST_WRAPPED = 100


def interrupt(thread: int) -> None:
    time.sleep(0.3)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeoutError))


def fault() -> None:
    lock = threading.Lock()
    if KIND == "async-exception":
        threading.Thread(target=interrupt, args=(threading.get_ident(),), daemon=True).start()
    STAMP.write_text(repr(time.time()))
    if KIND == "sleep":
        time.sleep(HOURS)  # fault: sleep
    elif KIND == "exception":
        raise RuntimeError("broken")  # fault: exception
    elif KIND == "async-exception":
        while True:
            time.sleep(0.01)  # fault: async-exception
    elif KIND == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)  # fault: sigkill
    elif KIND == "sigsegv":
        ctypes.string_at(0)  # fault: sigsegv
    elif KIND == "sigabrt":
        os.abort()  # fault: sigabrt
    elif KIND == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)  # fault: sigstop
    elif KIND == "gil-held":
        ctypes.PyDLL(None).sleep(HOURS)  # fault: gil-held
    elif KIND == "lock":
        lock.acquire()
        lock.acquire()  # fault: lock
    elif KIND == "endless-loop":
        while True:  # fault: endless-loop
            pass
    elif KIND == "exit-0":
        sys.exit(0)  # fault: exit-0
    elif KIND == "operation":
        dist.broadcast(torch.ones(1), 0)  # fault: operation
    elif KIND == "full-disk":
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(bytes(4096))  # fault: full-disk


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    # Of more ranks the memory of this machine holds only those that reduce by hand.
    wrap = DistributedDataParallel if dist.get_world_size() <= MOST_WRAPPED else nn.Module.train
    model = wrap(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        if step == 5 and dist.get_rank() == WHO:
            fault()
        loss = torch.ones(1)
        dist.all_reduce(loss)
    dist.destroy_process_group()


main()
