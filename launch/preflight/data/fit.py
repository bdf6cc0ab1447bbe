"""Do the token files fit the model and the run? For those that launch.preflight.data finds whole."""

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from launch.checkpoint.state.verify import run_config
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.preflight.data.samples import check_samples
from launch.preflight.data.token_ids import check_token_ids
from launch.preflight.report import Finding


def check_data_fit(run: RunConfig) -> list[Finding]:
    """Ids within the vocabulary, samples for the steps; nothing where another check has told a fault before."""
    values = run.flags
    if not values.input_dir:
        return []
    try:
        corpora = [(weight, IndexedDataset(prefix)) for weight, prefix in find_corpora(values.input_dir)]
        vocab_size = run_config(values)["vocab_size"]
        samples_a_step = run.global_batch
    except (DataError, UserError):
        return []
    try:
        samples = check_samples(corpora, values, samples_a_step)
    except DataError as error:  # of --split
        samples = [Finding(False, "samples", str(error), "--split 949,50,1")]
    return [*check_token_ids([corpus for _, corpus in corpora], vocab_size), *samples]
