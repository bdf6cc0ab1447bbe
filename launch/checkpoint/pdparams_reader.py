"""Where the arrays of a .pdparams file lie: read without a general unpickler, and without reading the arrays.

    tensors = read_pdparams("model_state.pdparams")
    tensors["lm_head.weight"].open()        # a memory-mapped array

`paddle.save` pickles {name: numpy array}. This reader takes the few opcodes that arrays need, imports nothing that the
file names, and notes where the bytes of an array are instead of reading them. It refuses everything else.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from launch.checkpoint.stored_tensor import StoredTensor
from launch.errors import UserError

# fmt: off
OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "EMPTY_DICT", "SETITEM", "SETITEMS", "DICT", "EMPTY_LIST",
    "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE", "NEWTRUE", "NEWFALSE", "BININT",
    "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    "MEMOIZE", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
)
# fmt: on


def opcode_handlers(*names: str) -> dict:
    """Return pickle's own functions for the named opcodes: entries of the `dispatch` of a class."""
    codes = [getattr(pickle, name)[0] for name in names]
    return {code: pickle._Unpickler.dispatch[code] for code in codes}


class Refused(Exception):
    """Something in a pickle that does not belong there."""


class StrictUnpickler(pickle._Unpickler):
    """pickle's reader in Python. It takes OPCODES alone and imports nothing that a file names.

    A pickle may run any program when it is loaded. Here a name is a key of `stand_ins`, or the file is refused.

    Attributes:
        stand_ins: (module, name) as the file writes them -> what is called or passed on in its place.
    """

    stand_ins: dict[tuple[str, str], object] = {}
    dispatch: dict[int, Any] = opcode_handlers(*OPCODES)

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.file = file

    def find_class(self, module: str, name: str) -> object:
        """Return the stand-in of a name.

        Raises:
            Refused: For others.
        """
        if (module, name) not in self.stand_ins:
            raise Refused(f"{module}.{name}")
        return self.stand_ins[module, name]


# What paddle.save adds to a state dictionary: Paddle's own names of the parameters.
STRUCTURED_NAMES = "StructuredToParameterName@@"
HOW_TO_HAVE_ARRAYS = "Where you trust the file, load it with paddle and save the model as safetensors."
# numpy's codes of dtypes. NumPy lacks bfloat16: Paddle saves its bits as uint16, a dtype that no weights have.
DTYPES = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "u2": "bfloat16",
    "i8": "int64",
    "i4": "int32",
    "i2": "int16",
    "i1": "int8",
    "u1": "uint8",
    "b1": "bool",
}


def read_pdparams(path: str | Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file by name.

    Raises:
        UserError: If the file is cut off or holds anything but named arrays.
    """
    path = Path(path)
    with open(path, "rb") as file:
        try:
            state = _ArraysOnly(file).load()
        except Refused as refused:
            raise UserError(f"{path}: refused: it holds {refused}, not only arrays. {HOW_TO_HAVE_ARRAYS}") from None
        except Exception:  # a damaged pickle fails in any way there is
            raise UserError(f"{path}: not a file of paddle.save, or damaged. Copy or download it again.") from None
    if not isinstance(state, dict):
        raise UserError(f"{path}: refused: it holds no dictionary of arrays. {HOW_TO_HAVE_ARRAYS}")
    size = path.stat().st_size
    unnamed = [name for name in state if not isinstance(name, str)]
    if unnamed:
        raise UserError(f"{path}: refused: {str(unnamed[0])[:80]!r} is no name of an array. {HOW_TO_HAVE_ARRAYS}")
    return {name: _stored(path, name, value, size) for name, value in state.items() if name != STRUCTURED_NAMES}


def _stored(path: Path, name: str, value: object, size: int) -> StoredTensor:
    if isinstance(value, tuple) and len(value) == 2:  # a Parameter is saved as (Paddle's name, array)
        value = value[1]
    if not isinstance(value, _Array) or not value.is_whole():
        raise UserError(f"{path}: refused: {name!r} is no array of numbers in row-major order. {HOW_TO_HAVE_ARRAYS}")
    tensor = StoredTensor(path, DTYPES[value.dtype.code], value.shape, value.bytes.offset)
    if tensor.nbytes != value.bytes.length or tensor.offset + tensor.nbytes > size:
        raise UserError(f"{path}: {name!r} has {value.bytes.length:,} bytes, its shape says {tensor.nbytes:,}.")
    return tensor


class _Bytes:
    """A range of bytes in the file."""

    def __init__(self, offset: int, length: int):
        self.offset = offset
        self.length = length


class _Dtype:
    """Stands in for numpy.dtype: dtype("f4", False, True), then its state with the byte order."""

    def __init__(self, code: str, *_):
        self.code = code
        self.order = ""

    def __setstate__(self, state: tuple) -> None:
        self.order = state[1]


class _Array:
    """Stands in for numpy.ndarray as its pickle makes it: _reconstruct(...), then its state."""

    def __init__(self, *_):
        self.bytes: Any = None  # a _Bytes in a whole array

    def __setstate__(self, state: tuple) -> None:
        _, self.shape, self.dtype, self.column_major, self.bytes = state

    def is_whole(self) -> bool:
        return (
            isinstance(self.bytes, _Bytes)
            and isinstance(self.dtype, _Dtype)
            and isinstance(self.dtype.code, str)
            and self.dtype.code in DTYPES
            and self.dtype.order != ">"
            and isinstance(self.shape, tuple)
            and all(type(length) is int and length >= 0 for length in self.shape)
            and not (self.column_major and len(self.shape) > 1)
        )


# What the file names, and what it gets. ndarray and tuple are only ever arguments, or called with arrays.
STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("collections", "OrderedDict"): dict,
    ("builtins", "tuple"): tuple,
    ("__builtin__", "tuple"): tuple,
}


class _ArraysOnly(StrictUnpickler):
    """Notes where bytes are, and does not read them."""

    stand_ins = STAND_INS
    read: Callable[[int], bytes]  # these three are set by pickle's own `load`
    append: Callable[[object], None]
    _unframer: Any

    def _note_bytes(self, length_bytes: int) -> None:
        length = int.from_bytes(self.read(length_bytes), "little")
        frame = self._unframer.current_frame  # what the reader holds of the file, None between frames
        ahead = len(frame.getbuffer()) - frame.tell() if frame else 0
        self.append(_Bytes(self.file.tell() - ahead, length))
        (frame if ahead else self.file).seek(length, 1)

    dispatch: dict[int, Any] = dict(StrictUnpickler.dispatch)
    dispatch[pickle.SHORT_BINBYTES[0]] = lambda self: self._note_bytes(1)
    dispatch[pickle.BINBYTES[0]] = lambda self: self._note_bytes(4)
    dispatch[pickle.BINBYTES8[0]] = lambda self: self._note_bytes(8)
