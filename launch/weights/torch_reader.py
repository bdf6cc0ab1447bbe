"""Where the tensors of a torch .bin file lie: without torch, without a general unpickler, without reading them.

    tensors = read_torch("pytorch_model.bin")
    tensors["lm_head.weight"].open()        # a memory-mapped array

Since torch 1.6 `torch.save` writes a zip file: ARCHIVE/data.pkl, a pickle of the tensors' names, shapes and storages,
and the storages' bytes, not compressed, in ARCHIVE/data/KEY. Only dictionaries of tensors are taken.
"""

import errno
import io
import math
import pickle
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from launch.checkpoint.pdparams_reader import Refused, StrictUnpickler, opcode_handlers
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.stored_tensor import StoredTensor, numpy_dtype
from launch.checkpoint.weight_files import read_indexed
from launch.errors import UserError

HOW_TO_CONVERT = "Where you trust the file, load it with torch and save the model as safetensors."
AGAIN = "Copy or download the file again."
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
# What zipfile raises for an archive that is damaged (a negative place in it: EINVAL), encrypted or of another kind.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError,
)  # fmt: skip
LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip entry: lengths of its name and extra field, which precede the bytes


def read_torch(path: str | Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file by name.

    Raises:
        UserError: If the file is cut off, of torch before 1.6, or holds anything but named tensors.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            state = _unpickled(path, archive)
            return {name: _stored(path, archive, name, value) for name, value in state.items()}
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise UserError(f"{path}: not a file of torch.save since torch 1.6, or cut off. {AGAIN}") from None


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str
    elements: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    first: int  # element of the storage
    shape: tuple
    strides: tuple

    @property
    def makes_sense(self) -> bool:
        return (
            isinstance(self.storage, _Storage)
            and isinstance(self.storage.key, str)
            and isinstance(self.shape, tuple)
            and isinstance(self.strides, tuple)
            and len(self.shape) == len(self.strides)
            and all(type(number) is int for number in (self.first, *self.shape, *self.strides))
            and min(self.shape, default=0) >= 0
        )


class _Dict(dict):
    """An OrderedDict of a file. Its attributes, torch's _metadata, are left aside."""

    def __setstate__(self, state: object) -> None:
        pass


def _rebuild_tensor(storage: _Storage, first: int, shape: tuple, strides: tuple, *_: object) -> _Tensor:
    return _Tensor(storage, first, shape, strides)


def _rebuild_parameter(tensor: _Tensor, *_: object) -> _Tensor:
    return tensor


class _TensorsOnly(StrictUnpickler):
    stand_ins = {
        ("collections", "OrderedDict"): _Dict,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        **{("torch", name): dtype for name, dtype in STORAGES.items()},
    }
    dispatch = StrictUnpickler.dispatch | opcode_handlers("BINPERSID")

    def persistent_load(self, reference: tuple) -> _Storage:
        kind, dtype, key, _, elements = reference
        if kind != "storage" or not isinstance(dtype, str) or dtype not in STORAGES.values():
            raise Refused(f"a reference to {kind!r}")
        return _Storage(key, dtype, elements)


def _unpickled(path: Path, archive: zipfile.ZipFile) -> dict:
    entries = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(entries) != 1:
        raise UserError(f"{path}: a zip file, but none of torch.save: no data.pkl in it. {AGAIN}")
    _require_stored(path, archive.getinfo(entries[0]))
    try:
        state = _TensorsOnly(io.BytesIO(archive.read(entries[0]))).load()
    except Refused as refused:
        raise UserError(f"{path}: refused: it holds {refused}, not only tensors. {HOW_TO_CONVERT}") from None
    except (pickle.UnpicklingError, KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError):
        # What pickle raises for an opcode that is not allowed is KeyError; a damaged file fails in any of these ways.
        raise UserError(f"{path}: refused: it holds more than named tensors, or is damaged. {HOW_TO_CONVERT}") from None
    if not isinstance(state, dict):
        raise UserError(f"{path}: refused: it holds no dictionary of tensors. {HOW_TO_CONVERT}")
    return state


def _stored(path: Path, archive: zipfile.ZipFile, name: str, tensor: object) -> StoredTensor:
    if not isinstance(name, str) or not isinstance(tensor, _Tensor) or not tensor.makes_sense:
        raise UserError(f"{path}: refused: {str(name)[:80]!r} is no tensor. {HOW_TO_CONVERT}")
    if not _is_row_major(tensor):
        raise UserError(f"{path}: {name!r} is not in row-major order. {HOW_TO_CONVERT}")
    start, size = _place(path, archive, tensor.storage.key)
    itemsize = numpy_dtype(tensor.storage.dtype).itemsize
    stored = StoredTensor(path, tensor.storage.dtype, tensor.shape, start + tensor.first * itemsize)
    if tensor.first < 0 or tensor.first * itemsize + stored.nbytes > size:
        raise UserError(f"{path}: {name!r} is larger than its place in the file. {AGAIN}")
    return stored


def _is_row_major(tensor: _Tensor) -> bool:
    """Return whether elements lie one after another in NumPy's order; dimensions of one element do not matter."""
    shape = tensor.shape
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    lengths = zip(shape, tensor.strides, expected, strict=True)
    return 0 in shape or all(length == 1 or stride == step for length, stride, step in lengths)


def _place(path: Path, archive: zipfile.ZipFile, key: str) -> tuple[int, int]:
    """Return (first byte in the file, number of bytes) of a storage."""
    (pickled,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
    try:
        entry = archive.getinfo(pickled.removesuffix("data.pkl") + f"data/{key}")
    except KeyError:
        raise UserError(f"{path}: the bytes of storage {key} are missing. {AGAIN}") from None
    _require_stored(path, entry)
    with open(path, "rb") as file:
        file.seek(entry.header_offset)
        name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    start = entry.header_offset + LOCAL_HEADER.size + name + extra
    if start + entry.file_size > path.stat().st_size:
        raise UserError(f"{path}: the bytes of storage {key} are missing. {AGAIN}")
    return start, entry.file_size


def _require_stored(path: Path, entry: zipfile.ZipInfo) -> None:
    """Raise UserError where an entry would have to be unpacked: a small file could fill the memory."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise UserError(f"{path}: its tensors are compressed, as torch.save never does. {HOW_TO_CONVERT}")


# ---- a model directory


# In the order in which transformers looks for them.
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def find_torch_weights(directory: Path) -> dict[str, StoredTensor]:
    """Return tensors by name.

    Raises:
        UserError: If there are none, a file is missing or damaged, or they are Paddle's.
    """
    for name in FILES:
        path = directory / name
        if path.is_file():
            return read_indexed(path, _read_file) if path.suffix == ".json" else _read_file(path)
    raise UserError(f"{directory}: no weights: looked for {', '.join(FILES)}.")


def _read_file(path: Path) -> dict[str, StoredTensor]:
    if path.suffix == ".bin":
        return read_torch(path)
    tensors, metadata = read_header(path)
    if metadata.get("format", "pt") != "pt":
        raise UserError(
            f"{path}: not in Hugging Face's layout (format {metadata['format']!r}, theirs is 'pt'). Weights of "
            "PaddleNLP need no import: --model_name_or_path takes the directory."
        )
    return tensors
