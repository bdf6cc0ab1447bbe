"""Batches of preferences: rows of chosen responses, then of rejected ones, whose responses alone have labels."""

from types import SimpleNamespace

import numpy as np
import pytest

from data_tools.dialogues.encoding import IGNORED
from data_tools.formats.errors import DataError
from data_tools.preferences.samples import Desired, Pair
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.rehearsal.materials import documents
from launch.training.batches import apart
from launch.training.preference_data import (
    NO_PAIR,
    NO_RESPONSE,
    collate_desired,
    collate_pairs,
    collate_scored,
    load_preferences,
    pair_collator,
    unrelated,
)
from tests.devices.row_ends import visible

N = IGNORED


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


ONE, TWO = Pair(ids(5, 6), ids(7, 2), ids(8, 9, 2)), Pair(ids(3), ids(4, 2), ids(2))


def test_pairs_are_two_rows_with_labels_of_the_next_position():
    batch = collate_pairs([ONE, TWO], pad=0, multiple=4)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 0], [3, 4, 0, 0], [5, 6, 8, 9], [3, 0, 0, 0]]
    assert batch["labels"].tolist() == [[N, 7, 2, N], [4, 2, N, N], [N, 8, 9, 2], [2, N, N, N]]
    assert set(batch) == {"input_ids", "labels"}
    assert {array.dtype for array in batch.values()} == {np.dtype("int64")}
    assert collate_pairs([ONE], pad=0)["labels"].shape == (2, 8)
    assert collate_pairs([ONE], pad=0, length=11)["labels"].shape == (2, 11)


def test_a_pair_that_is_not_there_has_no_labels():
    batch = collate_pairs([ONE, NO_PAIR], pad=0)
    assert (batch["labels"] != N).sum(1).tolist() == [2, 0, 3, 0]
    packed = collate_pairs([[TWO, ONE], NO_PAIR], pad=0, packed=True)
    assert (packed["labels"] != N).sum(1).tolist() == [4, 0, 4, 0] and packed["pairs"].shape[2] == 2


def test_packed_pairs_are_apart_and_numbered():
    batch = collate_pairs([[ONE, TWO], [TWO]], pad=0, multiple=1, packed=True)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 3, 4], [3, 4, 0, 0, 0], [5, 6, 8, 9, 3], [3, 0, 0, 0, 0]]
    assert batch["labels"].tolist() == [[N, 7, 2, 4, 2], [4, 2, N, N, N], [N, 8, 9, 2, 2], [2, N, N, N, N]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 1, 2], [0, 1, 2, 3, 0], [0, 0, 1, 2, 3]]
    numbers = np.where(batch["pairs"].any(2), batch["pairs"].argmax(2), -1)
    assert numbers.tolist() == [[-1, 0, 0, 1, 1], [2, 2, -1, -1, -1], [-1, 0, 0, 0, 1], [2, -1, -1, -1, -1]]
    assert (batch["attention_mask"] == apart(batch["position_ids"])).all()
    ends = collate_pairs([[ONE, TWO], [TWO]], pad=0, multiple=1, packed=True, row_ends=True)
    assert (visible(ends["attn_mask_startend_row_indices"]) == batch["attention_mask"]).all()
    assert "attention_mask" not in ends


def test_a_reward_model_reads_whole_texts_and_is_told_their_ends():
    batch = collate_scored([ONE, TWO], pad=0, multiple=1)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 2, 0], [3, 4, 2, 0, 0], [5, 6, 8, 9, 2], [3, 2, 0, 0, 0]]
    assert batch["ends"].tolist() == [3, 5 + 2, 10 + 4, 15 + 1]
    assert batch["tokens"].tolist() == [2, 2, 3, 1]
    assert set(batch) == {"input_ids", "ends", "tokens"}
    packed = collate_scored([[ONE, TWO], NO_PAIR], pad=0, multiple=1, packed=True)
    assert packed["input_ids"].tolist()[::2] == [[5, 6, 7, 2, 3, 4, 2], [5, 6, 8, 9, 2, 3, 2]]
    assert packed["ends"].tolist() == [3, 6, 7 + 1, 14 + 4, 14 + 6, 21 + 1]
    assert packed["tokens"].tolist() == [2, 2, 0, 3, 1, 0]
    assert (packed["attention_mask"] == apart(packed["position_ids"])).all()


def test_single_responses_and_unrelated_ones():
    samples = [Desired(ids(5, 6), ids(7, 2), True, ids(9)), Desired(ids(3), ids(9), False, ids(7, 2)), NO_RESPONSE]
    batch = collate_desired(samples, pad=0, multiple=1)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [3, 0, 0], [0, 0, 0]]
    assert batch["labels"].tolist() == [[N, 7, 2], [9, N, N], [N, N, N]]
    assert batch["desired"].tolist() == [True, False, True]
    others = collate_desired([unrelated(sample) for sample in samples], pad=0, multiple=1)
    assert others["labels"].tolist() == [[N, 9], [7, 2], [N, N]]


class Tokenizer:
    """As much of paddlenlp's as is used, of a tokenizer directory."""

    def __init__(self, directory):
        from data_tools.text.encoders import load_encoder

        self.directory, self.init_kwargs = directory, {"eos_token": "</s>"}
        self._encoder = load_encoder(directory)
        self.eos_token_id = self.pad_token_id = self._encoder.eos_id

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.decode([number]) for number in ids]

    def encode(self, text: str, add_special_tokens: bool = True) -> dict:
        found = self._encoder.encode_chat(text)
        return {"input_ids": [1, *found] if add_special_tokens else found}

    def decode(self, numbers: list[int], clean_up_tokenization_spaces: bool = True) -> str:
        return self._encoder.decode_chat(numbers)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory, train_tokenizer(list(documents())[:50], 384))
    return Tokenizer(directory)


@pytest.fixture
def load(tmp_path, tokenizer):
    def load_rows(text: str, config: str = "llama-rehearsal", **changes):
        (tmp_path / "train.json").write_text(text)
        flags = {"chat_template": None, "src_length": 32, "max_length": 64, "zero_padding": False, "max_broken_rows": 0}
        args = SimpleNamespace(dataset_name_or_path=[str(tmp_path)], **flags | changes)
        values = load_config(config) | {"vocab_size": 384}
        model = SimpleNamespace(to_dict=lambda: values, vocab_size=384)
        return load_preferences(args, SimpleNamespace(do_train=True, do_eval=False), tokenizer, model)

    return load_rows


CHAT = '{"prompt": [{"role": "user", "content": "why?"}], "chosen": [{"role": "assistant", "content": "so."}], '
CHAT += '"rejected": [{"role": "assistant", "content": "no."}]}'


def test_chats_take_the_template_of_the_family_and_the_tokenizer_notes_it(load, tokenizer):
    sets = load(CHAT)
    assert sets.lines[1:] == [
        "chat template: llama (of the model's family)",
        "a sample; chosen, then rejected, in [[ ]]:",
        "    <s>[INST] why? [/INST]",
        "    [[ so. </s>]]",
        "    [[ no. </s>]]",
    ]
    assert tokenizer.init_kwargs["trained_with_chat_template"]
    load('{"prompt": "why?", "chosen": "so.", "rejected": "no."}')
    assert tokenizer.init_kwargs["trained_with_chat_template"] == "none"


def test_packed_samples_are_lists(load):
    assert [len(sample) for sample in load(f"{CHAT}\n{CHAT}", zero_padding=True).train] == [2]


def test_the_collator_of_a_run(tokenizer):
    args = SimpleNamespace(max_length=24, pad_to_multiple_of=4, zero_padding=False)
    assert pair_collator(tokenizer, args, sequence_parallel=False)([ONE])["labels"].shape == (2, 4)
    assert pair_collator(tokenizer, args, sequence_parallel=True)([ONE])["labels"].shape == (2, 24)
    args.zero_padding = True
    packed = pair_collator(tokenizer, args, sequence_parallel=False, row_ends=True)([[ONE, TWO]])
    assert set(packed) == {"input_ids", "labels", "position_ids", "attn_mask_startend_row_indices", "pairs"}


def test_what_cannot_be_read_is_refused(load):
    with pytest.raises(DataError, match="train.json:1: one response that is desired or not"):
        load('{"prompt": "why?", "completion": "so.", "label": true}')
    with pytest.raises(UserError, match="ChatGLM-6B reads a prompt in both directions"):
        load(CHAT, "chatglm-rehearsal", chat_template="none")


@pytest.mark.long
def test_packed_pairs_have_the_log_probabilities_of_padded_ones(ranks):
    [found] = ranks(1, "tests.training.preference_ranks:packed_and_padded", ["llama", "bloom"])
    for name, (packed, padded) in found.items():
        assert packed == pytest.approx(padded, abs=5e-6), name
        assert max(packed) < -0.5


@pytest.mark.long
def test_all_dropout_of_a_model_ends(ranks):
    """That of layers, of numbers that layers have, and of the configuration."""
    families = ["opt", "bloom", "qwen2", "qwen2_moe", "mixtral", "chatglm_v2"]
    [found] = ranks(1, "tests.training.preference_ranks:differences_by_dropout", families)
    for name, (before, after) in found.items():
        assert before > 1e-4 and after == 0, name
