"""Do the token files fit the model and the run? For those that launch.preflight.data finds whole."""

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora
from data_tools.formats.tokens.indexed import IndexedDataset
from launch.checkpoint.state.verify import run_config
from launch.config.flag_values import FlagValues
from launch.config.layout import Layout
from launch.errors import UserError
from launch.preflight.data.samples import check_samples
from launch.preflight.data.token_ids import check_token_ids
from launch.preflight.report import Finding
from launch.preflight.situation import Situation


def check_data_fit(situation: Situation) -> list[Finding]:
    """Ids within the vocabulary, samples for the steps; nothing where another check has told a fault before."""
    values = FlagValues(situation.script, situation.flags)
    if not values.input_dir:
        return []
    try:
        corpora = [(weight, IndexedDataset(prefix)) for weight, prefix in find_corpora(values.input_dir)]
        vocab_size = run_config(values)["vocab_size"]
        data_ranks = Layout.from_flags(situation.flags, situation.processes).data_ranks
    except (DataError, UserError):
        return []
    samples_a_step = data_ranks * values.per_device_train_batch_size * values.gradient_accumulation_steps
    try:
        samples = check_samples(corpora, values, samples_a_step)
    except DataError as error:  # of --split
        samples = [Finding(False, "samples", str(error), "--split 949,50,1")]
    return [*check_token_ids([corpus for _, corpus in corpora], vocab_size), *samples]
