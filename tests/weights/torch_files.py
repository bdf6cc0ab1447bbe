"""Files as torch.save writes them, made without torch: a zip file with a pickle and the bytes of the storages."""

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np

STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "uint16": "BFloat16Storage", "int64": "LongStorage"}


class Tensor:
    """An array in a file of torch; uint16 stands for bfloat16. strides: in elements, the row-major ones if None."""

    def __init__(self, array: np.ndarray, key: str, first: int = 0, strides: tuple | None = None, parameter=False):
        self.array, self.key, self.first, self.parameter = array, key, first, parameter
        self.strides = strides or tuple(step // array.itemsize for step in np.empty(array.shape, array.dtype).strides)

    def __reduce__(self):
        torch = sys.modules["torch"]
        storage = Storage(getattr(torch, STORAGES[self.array.dtype.name]), self.key, self.array.size)
        rebuilt = (storage, self.first, self.array.shape, self.strides, False, OrderedDict())
        if self.parameter:
            whole = Tensor(self.array, self.key, self.first, self.strides)
            return torch._utils._rebuild_parameter, (whole, False, OrderedDict())
        return torch._utils._rebuild_tensor_v2, rebuilt


class Storage:
    def __init__(self, kind: type, key: str, elements: int):
        self.kind, self.key, self.elements = kind, key, elements


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return ("storage", value.kind, value.key, "cpu", value.elements) if isinstance(value, Storage) else None


def save_torch(path: Path, state: object, storages: dict[str, bytes], monkeypatch, compressed: bool = False) -> None:
    """Write `state` with these storages. The pickle names torch's own classes, for which stand-ins are put up."""
    _pretend_torch(monkeypatch)
    pickled = io.BytesIO()
    _Pickler(pickled, protocol=2).dump(state)
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")


def save_arrays(path: Path, arrays: dict[str, np.ndarray], monkeypatch) -> None:
    """A state dictionary, each tensor with a storage of its own, and the attribute that modules give it."""
    state = _Annotated((name, Tensor(array, str(i))) for i, (name, array) in enumerate(arrays.items()))
    state._metadata = OrderedDict({"": {"version": 1}})
    state.items = "an attribute in the way of a method"
    storages = {str(i): np.ascontiguousarray(array).tobytes() for i, array in enumerate(arrays.values())}
    save_torch(path, state, storages, monkeypatch)


class _Annotated(OrderedDict):
    def __reduce__(self):
        return OrderedDict, (), vars(self), None, iter(OrderedDict.items(self))


def _pretend_torch(monkeypatch) -> None:
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch._utils = utils
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
        function = types.FunctionType((lambda *args: None).__code__, {}, name)
        function.__module__, function.__qualname__ = "torch._utils", name
        setattr(utils, name, function)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
