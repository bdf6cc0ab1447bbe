"""Are the token files there and whole?"""

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from launch.config.flag_values import Flags
from launch.preflight.report import Finding


def check_data(flags: Flags) -> list[Finding]:
    """Open every corpus that --input_dir names; one finding for each at fault, one for all when none is."""
    if not flags.get("input_dir"):
        return [Finding(False, "data", "no --input_dir", "--input_dir FOLDER or DATA=FOLDER, with pairs X.bin, X.idx")]
    try:
        corpora = find_corpora(" ".join(flags["input_dir"]))
    except DataError as error:
        return [_fault(error)]
    faults, tokens = [], 0
    for _, prefix in corpora:
        try:
            tokens += IndexedDataset(prefix).tokens.size
        except DataError as error:
            faults.append(_fault(error))
    number = "1 corpus" if len(corpora) == 1 else f"{len(corpora)} corpora"
    return faults or [Finding(True, "data", f"{number}, {tokens:,} tokens")]


def _fault(error: DataError) -> Finding:
    return Finding(False, "data", str(error), "DATA=FOLDER or --input_dir names other data")
