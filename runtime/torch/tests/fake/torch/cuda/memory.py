import sys

CAPACITY = 1 << 30
_SEGMENT = 1 << 21

_history = None
_initialized = False
_annotations = []
_clock = 0
_address = 0x7F0000000000
_free_address = _address


def initialize():
    global _initialized
    _initialized = True


def _record_memory_history(
    enabled="all", context="all", stacks="all", max_entries=sys.maxsize, global_record_annotations=False
):
    # Like the real function, this has no effect before CUDA is initialised.
    global _history
    if _initialized:
        _history = [] if enabled else None


def recording():
    return _history is not None


def _note(**entry):
    global _clock
    _clock += 1
    if _history is not None:
        _history.append(dict(entry, stream=0, time_us=_clock))


def annotate(name, stage):
    global _clock
    _clock += 1
    if _history is not None:
        _annotations.append({"name": name, "stage": stage, "device": 0, "time_us": _clock})


class Tensor:
    def __init__(self, address, size):
        self.address, self.size = address, size

    def free(self):
        _note(action="free_requested", addr=self.address, size=self.size)
        _note(action="free_completed", addr=self.address, size=self.size)
        _note(action="segment_free", addr=self.address, size=_SEGMENT)


def allocate(size):
    """Each tensor has a segment of its own, which the importer accepts."""
    global _free_address
    address, _free_address = _free_address, _free_address + _SEGMENT
    _note(action="segment_alloc", addr=address, size=_SEGMENT)
    _note(action="alloc", addr=address, size=size)
    return Tensor(address, size)


def _snapshot():
    if _history is None:
        raise RuntimeError("nothing is recorded")
    return {
        "segments": [],
        "device_traces": [list(_history)],
        "allocator_settings": {},
        "external_annotations": list(_annotations),
    }
