import threading

import torch
from torch.cuda import memory

_initialization_lock = threading.Lock()
_initialized = False
_queued_calls = []
devices = 1


def device_count():
    return devices


def is_initialized():
    return _initialized


def _lazy_call(callable):
    with _initialization_lock:
        if _initialized:
            callable()
        else:
            _queued_calls.append(callable)


def _lazy_init():
    global _initialized
    if _initialized:
        return
    with _initialization_lock:
        torch._C._cuda_init()
        for call in _queued_calls:
            call()
        _initialized = True


init = _lazy_init
