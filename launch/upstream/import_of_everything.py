"""An import of paddlenlp imports all that it has.

paddlenlp/__init__.py imports task flows, data augmentation, a web server and benchmark data sets; trainer/__init__.py
imports compression with its metrics; peft imports the package prompt for one function. With them come scikit-learn,
SciPy, pandas, pyarrow, FastAPI and Hugging Face's datasets: more than half of the time of the import, in each process,
for nothing that training or answering uses. Corrected: these packages and modules are executed when a name of theirs
is requested that is no module in them, and the trainer does not look whether a data set is one of Hugging Face.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path

UNUSED = ("prompt/__init__.py", "datasets/__init__.py", "trainer/trainer_compress.py")


class _Unexecuted(types.ModuleType):
    """A module that is executed when a name is requested that is none of the modules in it."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__} has no attribute {name}")
        inside = f"{self.__name__}.{name}"
        if hasattr(self, "__path__") and importlib.util.find_spec(inside):
            return importlib.import_module(inside)
        self.__class__ = types.ModuleType
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def correct() -> None:
    if "paddlenlp" in sys.modules:
        return
    import paddle

    specification = importlib.util.find_spec("paddlenlp")
    package = _leave_unexecuted(specification)
    package.__version__ = importlib.metadata.version("paddlenlp")
    paddle.disable_signal_handler()  # as paddlenlp/__init__.py does
    root = Path(specification.origin).parent
    for file in UNUSED:
        path = root / file
        name = ".".join(("paddlenlp", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        inside = [str(path.parent)] if path.stem == "__init__" else None
        _leave_unexecuted(importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside))
    importlib.import_module("paddlenlp.data")  # first: the circle of data and transformers can be entered here alone
    importlib.import_module("paddlenlp.utils.import_utils").is_datasets_available = lambda: False


def _leave_unexecuted(specification) -> types.ModuleType:
    module = importlib.util.module_from_spec(specification)
    module.__class__ = _Unexecuted
    sys.modules[specification.name] = module
    return module
