"""Were the token files made with the tokenizer of the run? As far as their summaries tell."""

from pathlib import Path

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import read_summary
from data_tools.text.encoders import JSON_NAME, fingerprint, load_encoder
from launch.config.run_config import RunConfig
from launch.preflight.report import Finding

FIX = "--tokenizer_name_or_path DIRECTORY: that of the data; or tokenize the text again with the run's own"


def check_made_with(run: RunConfig) -> list[Finding]:
    """A fault for each corpus made with another tokenizer than the run's, which is --tokenizer_name_or_path or that of
    the model's directory; nothing for a name, which is downloaded, and for data without a summary.

    A sentencepiece model is told by its hash. A tokenizer.json is written anew when it is saved or imported: by the
    size of its vocabulary.
    """
    values = run.flags
    directory = Path(values.tokenizer_name_or_path or values.model_name_or_path or "").expanduser()
    if not values.input_dir or not directory.is_dir():
        return []
    try:
        corpora = [IndexedDataset(prefix) for _, prefix in find_corpora(values.input_dir)]
        encoder = load_encoder(directory)
    except DataError:  # told by the checks of the data and of the tokenizer
        return []
    key = "vocab_size" if encoder.path.name == JSON_NAME else "tokenizer"
    mine = {"vocab_size": encoder.vocab_size, "tokenizer": fingerprint(encoder)}
    faults = []
    for corpus in corpora:
        summary = read_summary(corpus)
        made = summary.made if summary else {}
        if made.get(key) and made[key] != mine[key]:
            found = f"{corpus.prefix} was made with {_told(made)}, the run's {encoder.path} is {_told(mine)}"
            faults.append(Finding(False, "tokenizer", found, FIX))
    return faults


def _told(tokenizer: dict) -> str:
    """a tokenizer of 4,096 ids (SHA-256 0123456789ab...); a merged corpus does not know how many."""
    ids = f" of {tokenizer['vocab_size']:,} ids" if "vocab_size" in tokenizer else ""
    return f"a tokenizer{ids} (SHA-256 {tokenizer.get('tokenizer', 'unknown')[:12]}...)"
