"""Serves torch through its pluggable allocator, for machines that cannot build the shim.

Through that interface torch only calls a few C functions; its statistics and snapshots
raise. So the functions of torch._C that raise are replaced here. The public functions of
torch.cuda and torch.accelerator look them up in torch._C at each call.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from stplan import _library
from stplan._process import say
from stplan._runtime import ALLOCATE, FREE, Runtime, RuntimeFailure
from stplan._torchstats import memory_stats, segments

# Never reset: torch keeps addresses of the library's functions, so it must stay loaded.
_installed: Optional[Runtime] = None


def install(
    torch: Any,
    plan: Optional[str],
    memory: str = "auto",
    counters: Optional[str] = None,
    move: str = "auto",
    proven: int = 0,
) -> None:
    """Serve this process from now on. torch is the module that the job imported, before
    it initialises CUDA. plan: a path, or None; memory: one of _runtime.MEMORY; counters:
    as in stplan_settings; move: one of _runtime.MOVE; proven: as in stplan_settings.

    Raises BuildError if there is no library and none can be built, RuntimeFailure if
    this torch or the plan cannot be served, ValueError for an unknown memory or move. torch
    is then unchanged.
    """
    global _installed
    if torch.cuda.is_initialized():
        raise RuntimeFailure("CUDA is in use already: the allocator can only be changed before CUDA is initialised")
    runtime = Runtime(_library.find())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(runtime.path, ALLOCATE, FREE)
    functions = allocator.allocator()
    # Without the first, memory would be reused too early; without the second, never
    # given back.
    functions.set_record_stream_fn(runtime.address("record_stream"))
    functions.set_reset_fn(runtime.address("empty_cache"))
    # Without these, the device would be waited for while a graph is captured.
    functions.set_begin_allocate_to_pool(runtime.address("begin_pool"))
    functions.set_end_allocate_to_pool_fn(runtime.address("end_pool"))
    runtime.start(plan, memory, counters, move, proven)
    torch.cuda.memory.change_current_allocator(allocator)
    _installed = runtime
    _Patches(torch, runtime).apply()


def installed() -> Optional[Runtime]:
    """The runtime that serves this process through the pluggable allocator, or None."""
    return _installed


class _Patches:
    """The functions of torch._C that ask about the allocator, answered by the runtime."""

    def __init__(self, torch: Any, runtime: Runtime) -> None:
        self._torch = torch
        self._runtime = runtime
        self._fractions: Dict[int, float] = {}
        self._failed: Dict[int, int] = {}  # by device: failed requests at the last reset of sums
        self._said = False

    def apply(self) -> None:
        answers: Dict[str, Callable[..., Any]] = {
            "_cuda_memoryStats": self._stats,
            "_cuda_resetPeakMemoryStats": self._runtime.reset_peaks,
            "_cuda_resetAccumulatedMemoryStats": self._reset_sums,
            "_cuda_setMemoryFraction": self._set_fraction,
            "_cuda_getMemoryFraction": self._get_fraction,
            "_cuda_memorySnapshot": self._snapshot,
            "_cuda_record_memory_history": self._record,
            "_cuda_record_memory_history_legacy": self._record,
            # torch's own versions of these would ask the native allocator.
            "_accelerator_getDeviceStats": self._stats,
            "_accelerator_resetPeakStats": self._runtime.reset_peaks,
            "_accelerator_resetAccumulatedStats": self._reset_sums,
            "_accelerator_isAllocatorInitialized": self._torch.cuda.is_initialized,
            "_accelerator_emptyCache": self._torch._C._cuda_emptyCache,
        }
        for name, answer in answers.items():
            if hasattr(self._torch._C, name):
                setattr(self._torch._C, name, answer)
        self._keep_benchmark_off()

    def _stats(self, device: int) -> Dict[str, Any]:
        statistics, counters = self._runtime.read(device)
        out_of_memory = counters.failed_allocations - self._failed.get(device, 0)
        return memory_stats(statistics, counters.growths, out_of_memory)

    def _reset_sums(self, device: int) -> None:
        self._failed[device] = self._runtime.read(device)[1].failed_allocations
        self._runtime.reset_sums(device)

    def _set_fraction(self, fraction: float, device: int) -> None:
        total = self._torch.cuda.get_device_properties(device).total_memory
        self._fractions[device] = fraction
        # At least 1 byte, since the runtime takes a limit of 0 for no limit.
        self._runtime.limit(device, max(1, int(fraction * total)))

    def _get_fraction(self, device: int) -> float:
        return self._fractions.get(device, 1.0)

    def _snapshot(self, pool: Any = None) -> Dict[str, Any]:
        devices = range(self._torch.cuda.device_count())
        # MemPools cannot be made under this allocator, so any pool but the default (0, 0)
        # is empty.
        anywhere = pool is None or tuple(pool[:2]) == (0, 0)
        return {
            "segments": [s for d in devices for s in segments(self._runtime.ranges(d), d)] if anywhere else [],
            "device_traces": [[] for _ in devices],
            "allocator_settings": {},
            "external_annotations": [],
        }

    def _record(self, enabled: Any, *ignored: Any) -> None:
        if enabled and not self._said:
            self._said = True
            say("memory history is not recorded: only the shim records it, and it needs a C++ compiler")

    def _keep_benchmark_off(self) -> None:
        """Keep cudnn.benchmark switched off. It asks the allocator for its largest free
        block, which a pluggable allocator cannot answer, so every convolution would
        raise."""
        cudnn = getattr(self._torch.backends, "cudnn", None)
        switch = vars(type(cudnn)).get("benchmark")
        if switch is None or not hasattr(self._torch._C, "_set_cudnn_benchmark"):
            return
        original = self._torch._C._set_cudnn_benchmark
        said = False

        def keep_off(on: bool) -> None:
            nonlocal said
            if on and not said:
                said = True
                say("torch.backends.cudnn.benchmark stays off: it needs the shim, which needs a C++ compiler")
            original(False)

        if self._torch._C._get_cudnn_benchmark():
            keep_off(True)
        self._torch._C._set_cudnn_benchmark = switch.setter = keep_off
