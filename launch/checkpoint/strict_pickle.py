"""A reader of pickles that runs nothing: a few opcodes, and stand-ins for the few names that a file may use.

A pickle may run any program when it is loaded. This reader imports nothing that a file names: a name is a key of the
reader's `stand_ins`, or the file is refused.
"""

import pickle
from typing import BinaryIO

OPCODES = [
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
    "POP",
    "POP_MARK",
    "EMPTY_DICT",
    "SETITEM",
    "SETITEMS",
    "DICT",
    "EMPTY_LIST",
    "APPEND",
    "APPENDS",
    "EMPTY_TUPLE",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINPUT",
    "LONG_BINPUT",
    "BINGET",
    "LONG_BINGET",
    "MEMOIZE",
    "GLOBAL",
    "STACK_GLOBAL",
    "REDUCE",
    "BUILD",
]


def dispatch(*names: str) -> dict:
    """pickle's own functions for opcodes of these names, for the `dispatch` of a class."""
    codes = [getattr(pickle, name)[0] for name in names]
    return {code: pickle._Unpickler.dispatch[code] for code in codes}


class Refused(Exception):
    """Something in a pickle that does not belong there."""


class StrictUnpickler(pickle._Unpickler):
    """pickle's reader in Python, for OPCODES and stand_ins alone.

    stand_ins: (module, name) as the file writes them -> what is called or handed on in its place.
    """

    stand_ins: dict[tuple[str, str], object] = {}
    dispatch = dispatch(*OPCODES)

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.file = file

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.stand_ins:
            raise Refused(f"{module}.{name}")
        return self.stand_ins[module, name]
