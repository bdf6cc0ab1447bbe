"""Dialogues before a run: how they look to the model, without Paddle."""

import json
from collections import Counter

import pytest

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.rows import Rows
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from launch.config.run_config import RunConfig
from launch.families.named_configs import load_config
from launch.preflight.dialogues import check_rows, spread
from launch.rehearsal.materials import documents

OWN = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
CHAT = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so."}]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(list(documents())[:50], 384)


@pytest.fixture
def found(tmp_path, tokenizer):
    """found(rows, template): what is found by subject, of these rows and a model with this template."""

    def find(rows: list[dict], template=None, shows=True, method="finetuning", **flags) -> dict[str, tuple[bool, str]]:
        save_tokenizer(tmp_path / "model", tokenizer)
        (tmp_path / "model" / "config.json").write_text(json.dumps(load_config("llama-rehearsal")))
        config = tmp_path / "model" / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": template}))
        (tmp_path / "train.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        stated = {"model_name_or_path": tmp_path / "model", "dataset_name_or_path": tmp_path, "do_train": 1} | flags
        flags = {name: [str(one)] for name, one in stated.items()}
        situation = RunConfig(method, flags)
        findings = check_rows(situation, shows)
        find.fixes = {one.subject: one.fix for one in findings}
        find.warned = [one.subject for one in findings if one.warns]
        return {one.subject: (one.ok, one.found) for one in findings}

    return find


def test_the_template_a_sample_and_the_lengths_are_told(found, tmp_path):
    told = found([{"messages": CHAT}], OWN, src_length=4, max_length=100)
    assert told["chat template"] == (True, f"{tmp_path}/model/tokenizer_config.json")
    assert told["lengths"][1].startswith("of 1 dialogue: cut: 1 question, the longest has ")
    assert found.fixes["lengths"] == "raise --src_length" and "lengths" in found.warned
    whole = found([{"messages": CHAT}], OWN, src_length=40, max_length=100)
    assert whole["sample"] == (True, "a sample; its target tokens stand in [[ ]]:\n    u:why?[[a:so.</s>]]")
    assert "nothing cut" in whole["lengths"][1] and found.fixes["lengths"] == "" and "lengths" not in found.warned
    none = found([{"messages": CHAT}], OWN, src_length=8, max_length=8)
    assert none["--src_length"] == (False, "8, no less than --max_length 8: no room for an answer")
    assert none["chat template"] == told["chat template"] and not none.keys() & {"--chat_template", "lengths"}


def test_a_row_that_a_template_refuses_is_a_broken_one(found, tmp_path):
    row = {"messages": [{"role": "system", "content": "S"}, *CHAT]}
    refusing = "{{ raise_exception('no system') if messages[0].role == 'system' }}" + OWN
    rows = [{"messages": CHAT}, row]
    ok, reason = found(rows, refusing)["--chat_template"]
    assert (
        not ok
        and f"{tmp_path / 'train.json'}:2: " in reason
        and "it says: no system" in reason
        and "--max_broken_rows allows 0" in reason
    )
    told = found(rows, refusing, max_broken_rows=1)
    assert told["chat template"][0] and told["lengths"][1].startswith("of 1 dialogue: ")


def test_pairs_are_bare_texts_and_ranks_that_show_nothing_render_nothing(found, monkeypatch):
    told = found([{"src": "why?", "tgt": "so."}], OWN)
    assert told["chat template"] == (True, "none, the bare texts")
    assert told["sample"][1].endswith("\n    why?[[so.</s>]]")
    monkeypatch.setattr(ChatTemplate, "render_all", None)
    told = found([{"messages": CHAT}], OWN, shows=False)
    assert "chat template" in told and "sample" not in told and "lengths" not in told


def test_no_more_than_two_hundred_are_rendered():
    for count in (100, 101, 200, 201, 299, 1999, 5000):
        some = spread(Rows("f", [*range(count)], [*range(1, count + 1)], None, [], Counter()))
        assert some.entries[:100] == list(range(100)) and min(count, 150) <= len(some.entries) <= 200
        assert some.lines == [one + 1 for one in some.entries] and len(set(some.lines)) == len(some.lines)


WHY = {"prompt": [{"role": "user", "content": "why?"}]}
PREFERRED = WHY | {
    name: [{"role": "assistant", "content": text}] for name, text in (("chosen", "so."), ("rejected", "no."))
}
LABELED = WHY | {"completion": CHAT[1:], "label": True}


def test_preferences_are_read_and_shown(found, tmp_path):
    told = found([PREFERRED], OWN, method="preferences", max_length=2048)
    assert told["data"] == (True, "train 1 preference (chosen/rejected messages)")
    assert told["chat template"] == (True, f"{tmp_path}/model/tokenizer_config.json")
    assert told["lengths"][1].startswith("of 1 pair: nothing cut, the longest has ")
    sample = "a sample; chosen, then rejected, in [[ ]]:\n    u:why?\n    [[a:so.</s>]]\n    [[a:no.</s>]]"
    assert told["sample"] == (True, sample)
    told = found([LABELED, PREFERRED | LABELED], OWN, method="preferences", loss_type="kto")
    assert told["lengths"][1].startswith("of 2 responses: ")
    assert told["sample"][1].endswith("the response in [[ ]]:\n    u:why?\n    [[a:so.</s>]]")


def test_preferences_that_cannot_be_learnt_stop_the_run(found, tmp_path):
    same = PREFERRED | {"rejected": PREFERRED["chosen"]}
    ok, reason = found([PREFERRED, same], OWN, method="preferences")["data"]
    assert not ok and f"{tmp_path}/train.json:2: chosen and rejected are the same" in reason
    ok, reason = found([LABELED], OWN, method="preferences")["data"]
    assert not ok and "expected a chosen and a rejected one. --loss_type kto" in reason
    long = PREFERRED | {"chosen": [{"role": "assistant", "content": "so. " * 40 + "A"}]}
    long["rejected"] = [{"role": "assistant", "content": "so. " * 40 + "B"}]
    ok, reason = found([long], OWN, method="preferences", src_length=8, max_length=32)["lengths"]
    assert (
        not ok and "nothing is left to learn from; nothing cut; dropped: 1 pair whose responses are the same" in reason
    )
