"""From the data flags to the samples of fine-tuning."""

from functools import partial

from data_tools.formats.dialogues.datasets import Columns, Datasets, encode_survey, survey
from launch.errors import UserError
from launch.training.data.encoding import encoding_of
from launch.training.ranks import first_on_rank_zero


def require_tokenizer(tokenizer):
    """Raises UserError where there is none."""
    if tokenizer is None:
        raise UserError("the model comes without a tokenizer: --tokenizer_name_or_path names the one it was made with.")
    return tokenizer


def open_dialogues(data_args, training_args, tokenizer, config) -> Datasets:
    """Read and encode all dialogues, on rank 0 first.

    Raises UserError when files are missing or broken beyond what is allowed, or a token is beyond the vocabulary.
    """
    wanted = [name for name, needed in (("train", training_args.do_train), ("dev", training_args.do_eval)) if needed]
    columns = Columns(data_args.prompt_column, data_args.response_column)

    encoding = partial(encoding_of, data_args, tokenizer, config.to_dict())

    def open_all() -> Datasets:
        named = " ".join(data_args.dataset_name_or_path)
        found = survey(named, tuple(wanted), columns, data_args.max_broken_rows)
        datasets = encode_survey(found, encoding, data_args.max_length if data_args.zero_padding else None)
        _check_vocabulary(datasets, config.vocab_size)
        return datasets

    return first_on_rank_zero(open_all)


def _check_vocabulary(datasets: Datasets, vocab_size: int) -> None:
    for dataset in (datasets.train, datasets.dev):
        if dataset is not None and dataset.largest_id >= vocab_size:
            raise UserError(
                f"the tokenizer makes id {dataset.largest_id}, but the model has {vocab_size} ids, 0 to "
                f"{vocab_size - 1}: --tokenizer_name_or_path names another model's."
            )
