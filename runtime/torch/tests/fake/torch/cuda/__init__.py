from torch.cuda import memory

_initialized = False
_queued_calls = []


def is_initialized():
    return _initialized


def _lazy_call(callable):
    if _initialized:
        callable()
    else:
        _queued_calls.append(callable)


def _lazy_init():
    global _initialized
    if _initialized:
        return
    _initialized = True
    memory.initialize()
    for call in _queued_calls:
        call()


init = _lazy_init
