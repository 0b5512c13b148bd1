"""Asks the CUDA driver about the device and its memory, without torch."""

from __future__ import annotations

import ctypes
import platform
from importlib.metadata import version


class Device:
    """One device. It retains the device's primary context, which takes some memory."""

    def __init__(self, ordinal: int = 0) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._device = device = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def memory(self) -> "tuple[int, int]":
        """Bytes in use by all processes together, and total bytes: the source of
        `torch.cuda.mem_get_info`."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value, total.value

    def take(self, size: int) -> int:
        """Allocates `size` bytes as cudaMalloc does, and returns their address."""
        address = ctypes.c_uint64()
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def give(self, address: int) -> None:
        """Frees what take returned."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def about(self) -> str:
        """Versions of the software, and the device's name."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        versions = (f"{package} {version(package)}" for package in ("torch", "transformers"))
        return ", ".join([*versions, name.value.decode(), f"Python {platform.python_version()}"])

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise OSError(f"{name}: expected 0 (CUDA_SUCCESS), found error {code}")
