# SPDX-License-Identifier: Apache-2.0
"""Memory of arrays, as the library wants it: address, number and type of elements.

Whatever holds numbers is taken: tensors of PyTorch, what has ``__array_interface__``,
``__cuda_array_interface__`` or ``__dlpack__``, and what has the buffer protocol. Nothing is
copied, so what is not contiguous is refused.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

# Name: number of its ncclDataType_t, bytes.
TYPES: dict[str, tuple[int, int]] = {
    "int8": (0, 1),
    "uint8": (1, 1),
    "int32": (2, 4),
    "uint32": (3, 4),
    "int64": (4, 8),
    "uint64": (5, 8),
    "float16": (6, 2),
    "float32": (7, 4),
    "float64": (8, 8),
    "bfloat16": (9, 2),
    "float8_e4m3fn": (10, 1),
    "float8_e5m2": (11, 1),
}

# Other names of the same.
_ALIASES = {
    "float8_e4m3fnuz": "float8_e4m3fn",
    "float8_e5m2fnuz": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bool": "uint8",
}

# The letters of the array interfaces, and of DLPack, before the bytes.
_KINDS = {"i": "int", "u": "uint", "f": "float", "b": "uint"}
_DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "uint"}
_DLPACK_HOST = {1, 3, 11}  # kDLCPU, kDLCUDAHost, kDLROCMHost
_DLPACK_GPU = {2, 10}  # kDLCUDA, kDLROCM

# The letters of the buffer protocol.
_FORMATS = {
    "b": "int8",
    "B": "uint8",
    "c": "uint8",
    "?": "uint8",
    "i": "int32",
    "I": "uint32",
    "l": f"int{8 * ctypes.sizeof(ctypes.c_long)}",
    "L": f"uint{8 * ctypes.sizeof(ctypes.c_ulong)}",
    "q": "int64",
    "Q": "uint64",
    "e": "float16",
    "f": "float32",
    "d": "float64",
}


class Memory(NamedTuple):
    """Contiguous elements. ``owner`` keeps them alive."""

    address: int
    count: int  # type: ignore[assignment]  # hides tuple.count()
    dtype: str
    writable: bool
    on_gpu: bool
    owner: Any

    @property
    def type_number(self) -> int:
        return TYPES[self.dtype][0]

    @property
    def num_bytes(self) -> int:
        return self.count * TYPES[self.dtype][1]


def _type_named(name: str, what: Any) -> str:
    plain = name.rpartition(".")[2]
    plain = _ALIASES.get(plain, plain)
    if plain not in TYPES:
        raise TypeError(
            f"elements of type {name} of {type(what).__name__}: the library has " + ", ".join(TYPES)
        )
    return plain


def _type_of_interface(typestr: str, array: Any) -> str:
    named = getattr(getattr(array, "dtype", None), "name", None)
    if named in TYPES or named in _ALIASES:
        return _type_named(named, array)
    if typestr[0] == ">":
        raise TypeError(f"big-endian elements ({typestr}): the library wants the machine's order")
    kind = _KINDS.get(typestr[1])
    if kind is None:
        raise TypeError(f"elements of type {typestr}: the library has " + ", ".join(TYPES))
    return _type_named(f"{kind}{8 * int(typestr[2:])}", array)


def _count(shape: Any) -> int:
    count = 1
    for extent in shape:
        count *= int(extent)
    return count


def _is_contiguous(shape: Any, strides: Any, element: int) -> bool:
    """Strides in the unit of ``element``; None is contiguous. Extents of 1 do not matter."""
    if strides is None or _count(shape) == 0:
        return True
    expected = element
    for extent, stride in zip(reversed(list(shape)), reversed(list(strides))):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _refuse_gaps(array: Any) -> None:
    raise ValueError(
        f"{type(array).__name__} is not contiguous: make it so (a copy), as the library "
        "reads and writes the memory itself"
    )


def _of_torch(tensor: Any) -> Memory:
    if str(tensor.layout) != "torch.strided":
        raise TypeError(f"a tensor of layout {tensor.layout}: the library wants a dense one")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on {tensor.device.type}: the library takes cpu and cuda")
    if tensor.is_conj() or tensor.is_neg():
        raise TypeError("a lazily conjugated or negated tensor: resolve it first")
    if not tensor.is_contiguous():
        _refuse_gaps(tensor)
    return Memory(
        tensor.data_ptr(),
        tensor.numel(),
        _type_named(str(tensor.dtype), tensor),
        True,
        tensor.device.type == "cuda",
        tensor,
    )


def _of_interface(array: Any, interface: dict[str, Any], on_gpu: bool) -> Memory:
    dtype = _type_of_interface(interface["typestr"], array)
    if not _is_contiguous(interface["shape"], interface.get("strides"), TYPES[dtype][1]):
        _refuse_gaps(array)
    if interface.get("mask") is not None:
        raise TypeError("a masked array: the library has no masks")
    address, readonly = interface["data"]
    return Memory(int(address), _count(interface["shape"]), dtype, not readonly, on_gpu, array)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def _of_dlpack(array: Any) -> Memory:
    # Unused, the capsule gives back what it holds when it goes, and `array` stays.
    capsule = array.__dlpack__()
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if t.device_type not in _DLPACK_HOST | _DLPACK_GPU:
        raise TypeError(f"memory of DLPack device type {t.device_type}: need CPU, CUDA or ROCm")
    kind = _DLPACK_KINDS.get(t.code)
    if kind is None or t.lanes != 1:
        raise TypeError(
            f"DLPack elements of code {t.code} with {t.lanes} lanes: the library has "
            + ", ".join(TYPES)
        )
    dtype = _type_named(f"{kind}{t.bits}", array)
    shape = [t.shape[i] for i in range(t.ndim)]
    strides = [t.strides[i] for i in range(t.ndim)] if t.strides else None
    if not _is_contiguous(shape, strides, 1):
        _refuse_gaps(array)
    return Memory(
        (t.data or 0) + t.byte_offset,
        _count(shape),
        dtype,
        True,
        t.device_type in _DLPACK_GPU,
        (array, capsule),
    )


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


def _of_buffer(array: Any) -> Memory:
    view = memoryview(array)  # exported until it goes: it is the owner
    letter = view.format.lstrip("@=<")
    if letter not in _FORMATS or TYPES[_FORMATS[letter]][1] != view.itemsize:
        raise TypeError(f"elements of format {view.format}: the library has " + ", ".join(TYPES))
    if not view.c_contiguous:
        _refuse_gaps(array)
    raw = _PyBuffer()
    _get_buffer(view, ctypes.byref(raw), 0)
    address = raw.buf or 0
    _release_buffer(ctypes.byref(raw))
    count = view.nbytes // view.itemsize
    return Memory(address, count, _FORMATS[letter], not view.readonly, False, view)


def memory_of(array: Any) -> Memory:
    """Where the elements of ``array`` are.

    >>> import array
    >>> memory_of(array.array("f", [1, 2, 3]))[1:5]
    (3, 'float32', True, False)
    >>> memory_of(memoryview(b"abcd")[::2])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: memoryview is not contiguous: make it so (a copy), ...
    """
    if isinstance(array, Memory):
        return array
    if type(array).__module__.partition(".")[0] == "torch" and hasattr(array, "data_ptr"):
        return _of_torch(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface, True)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface, False)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array)
    try:
        return _of_buffer(array)
    except TypeError as reason:
        raise TypeError(f"{type(array).__name__} is no array of numbers: {reason}") from None
