"""What the driver says of the device's memory, to a process without torch."""

from __future__ import annotations

import ctypes
import platform
from importlib.metadata import version


class Device:
    """Holds the device's primary context, which takes some memory of its own."""

    def __init__(self, ordinal: int = 0) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._device = device = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def memory(self) -> "tuple[int, int]":
        """Bytes in use by all processes together, and bytes in all: what
        `torch.cuda.mem_get_info` is made of."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value, total.value

    def about(self) -> str:
        """The device and what the jobs run on."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        versions = (f"{package} {version(package)}" for package in ("torch", "transformers"))
        return ", ".join([*versions, name.value.decode(), f"Python {platform.python_version()}"])

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise OSError(f"{name}: the driver answers with error {code}")
