"""From the data flags to the samples of fine-tuning."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from data_tools.formats.dialogues.chat_template import trained_with
from data_tools.formats.dialogues.datasets import Columns, Datasets, Survey, encode_survey, survey
from data_tools.formats.dialogues.samples import sample_lines
from launch.checkpoint.state.manifest import read_manifest
from launch.errors import UserError
from launch.families.chat import template_line
from launch.training.data.encoding import encoding_of
from launch.training.ranks import first_on_rank_zero


def require_tokenizer(tokenizer):
    """Raises UserError where there is none."""
    if tokenizer is None:
        raise UserError("the model comes without a tokenizer: --tokenizer_name_or_path names the one it was made with.")
    return tokenizer


def open_dialogues(data_args, training_args, tokenizer, config, checkpoint: Path | None = None) -> Datasets:
    """Read and encode all dialogues, on rank 0 first. The tokenizer, which is saved with what is trained, then says
    which chat template that was.

    checkpoint: that the run continues. A run that began before chats took the tokenizer's own template, which the
    identity of its data shows, keeps that of the model's family.
    Raises UserError when files are missing or broken beyond what is allowed, or a token is beyond the vocabulary.
    """
    wanted = [name for name, needed in (("train", training_args.do_train), ("dev", training_args.do_eval)) if needed]
    columns = Columns(data_args.prompt_column, data_args.response_column)

    make_encoding = partial(encoding_of, data_args, tokenizer, config.to_dict())
    packed = data_args.max_length if data_args.zero_padding else None
    before = read_manifest(checkpoint).data if checkpoint and not training_args.ignore_load_lr_and_optim else None

    def open_all() -> Datasets:
        named = " ".join(data_args.dataset_name_or_path)
        found = survey(named, tuple(wanted), columns, data_args.max_broken_rows)
        encoding = cache(make_encoding)
        datasets = encode_survey(found, encoding, packed)
        if before and data_args.chat_template is None and not _continues(datasets, before):
            of_family = cache(partial(make_encoding, family_template=True))
            earlier = encode_survey(found, of_family, packed)
            if _continues(earlier, before):
                datasets, encoding = earlier, of_family
        _check_vocabulary(datasets, config.vocab_size)
        return replace(datasets, lines=datasets.lines + _told(found, datasets, encoding, tokenizer))

    return first_on_rank_zero(open_all)


def _continues(datasets: Datasets, before: dict) -> bool:
    """Whether the samples to train on are those of a checkpoint's data."""
    now = datasets.train.identity()
    return now == {key: before.get(key) for key in now}


def _told(found: Survey, datasets: Datasets, encoding, tokenizer) -> list[str]:
    """Which template the rows have, and one of them as the model sees it."""
    kinds = {rows.schema.chat for source in [*found.train, *found.dev] for rows in source}
    templates = {kind: encoding(kind).template for kind in sorted(kinds)}
    if found.train:
        one = next(iter(templates.values())) if len(set(templates.values())) == 1 else None
        tokenizer.init_kwargs = trained_with(one, tokenizer.init_kwargs)
    shown = datasets.train if datasets.train is not None else datasets.dev
    lines = [template_line(template) for template in dict.fromkeys(templates.values())]
    return lines + sample_lines(shown, partial(tokenizer.decode, clean_up_tokenization_spaces=False))


def _check_vocabulary(datasets: Datasets, vocab_size: int) -> None:
    for dataset in (datasets.train, datasets.dev):
        if dataset is not None and dataset.largest_id >= vocab_size:
            raise UserError(
                f"the tokenizer makes id {dataset.largest_id}, but the model has {vocab_size} ids, 0 to "
                f"{vocab_size - 1}: --tokenizer_name_or_path names another model's."
            )
