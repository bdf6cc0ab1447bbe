"""An import of paddlenlp imports all that it has.

paddlenlp/__init__.py imports task flows, data augmentation, a web server and benchmark data sets; trainer/__init__.py
imports compression with its metrics; peft imports the package prompt for one function. With them come scikit-learn,
SciPy, pandas, pyarrow, FastAPI and Hugging Face's datasets: more than half of the time of the import, in each process,
for nothing that training or answering uses. Corrected: these packages and modules are executed when one of their names
other than a submodule is requested, and the trainer does not look whether a data set is one of Hugging Face. So
Trainer.compress and its kin are not there before somebody requests a name of trainer/trainer_compress.py.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path

UNUSED = ("prompt/__init__.py", "datasets/__init__.py", "trainer/trainer_compress.py")


class _Unexecuted(types.ModuleType):
    """A module that is executed when one of its names other than a submodule is requested."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__} has no attribute {name}")
        inside = f"{self.__name__}.{name}"
        if hasattr(self, "__path__") and importlib.util.find_spec(inside):
            return importlib.import_module(inside)
        self.__class__ = types.ModuleType  # pyright: ignore[reportAttributeAccessIssue]  # modules may do so
        assert self.__spec__ and self.__spec__.loader, self.__name__
        try:
            self.__spec__.loader.exec_module(self)
        except BaseException:
            self.__class__ = _Unexecuted  # pyright: ignore[reportAttributeAccessIssue]  # as above
            raise
        return getattr(self, name)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if "paddlenlp" in sys.modules:
        return
    import paddle

    specification = importlib.util.find_spec("paddlenlp")
    if specification is None or specification.origin is None:
        raise ModuleNotFoundError("No module named 'paddlenlp'", name="paddlenlp")
    root = Path(specification.origin).parent
    package = _leave_unexecuted("paddlenlp", root / "__init__.py")
    vars(package)["__version__"] = importlib.metadata.version("paddlenlp")
    paddle.disable_signal_handler()  # as paddlenlp/__init__.py does
    for file in UNUSED:
        _leave_unexecuted(".".join(("paddlenlp", *Path(file).with_suffix("").parts)), root / file)
    importlib.import_module("paddlenlp.data")  # first: the circle of data and transformers can be entered here alone
    vars(importlib.import_module("paddlenlp.utils.import_utils"))["is_datasets_available"] = lambda: False


def _leave_unexecuted(name: str, file: Path) -> types.ModuleType:
    inside = [str(file.parent)] if file.stem == "__init__" else None
    name = name.removesuffix(".__init__")
    specification = importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
    assert specification, file
    module = importlib.util.module_from_spec(specification)
    module.__class__ = _Unexecuted
    sys.modules[name] = module
    return module
