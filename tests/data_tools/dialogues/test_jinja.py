"""Chat templates as transformers has them: which one is taken, which tokens count, and what a template cannot do."""

import json
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from data_tools.dialogues import chat_template
from data_tools.dialogues.chat_template import ChatTemplate, as_jinja, directory_template, load_template
from data_tools.dialogues.encoding import Encoding, encode_dialogue
from data_tools.dialogues.messages import plain_dialogue
from data_tools.dialogues.template_worker import Renderer, Sandbox
from data_tools.formats.errors import DataError
from data_tools.text.workers import Workers
from launch.families.encoding import find_template, template_names

TURNS = ("Q", "A"), ("R", "B")
TWO = plain_dialogue(TURNS)
SCENE = plain_dialogue(TURNS, "S")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# LLaMA-3's, as published with meta-llama/Meta-Llama-3-8B-Instruct.
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}\n"
    "{% else %}{{ m.role }}: {{ m.content }} -> {% endif %}{% endfor %}"
)


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SYSTEM_LOOPS = "{% if messages[0].content == 'S' %}" + LOOPS + "{% endif %}" + CHATML


def test_answers_are_what_follows_the_question_or_what_generation_encloses():
    asked = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    later = "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n"
    assert ChatTemplate(CHATML).render(SCENE).samples == [[(asked, "A<|im_end|>\n"), (later, "B<|im_end|>\n")]]
    marked = [("system: S -> user: Q -> ", "A</s>"), ("user: R -> ", "B</s>")]
    assert ChatTemplate(MARKED).render(SCENE).samples == [marked]


def test_our_template_of_llama3_is_the_published_one():
    ours = find_template("llama3", None, {"model_type": "llama"})
    published = ChatTemplate(LLAMA3, tokens={"bos_token": "<|begin_of_text|>"})
    assert [ours.render(dialogue) for dialogue in (TWO, SCENE)] == [published.render(one) for one in (TWO, SCENE)]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for m in messages %}", "not a Jinja template, line 1: Unexpected end of template"),
        ("{{ ''.__class__.__mro__ }}", "refused by the sandbox: access to attribute '__class__' of 'str' object is"),
        ("{{ messages.append(1) }}", "refused by the sandbox: access to attribute 'append' of 'list' object is unsafe"),
        ("{{ raise_exception('no system') }}", "it says: no system"),
        ("{% for m in messages %}{{ m.content.lower() }}{% endfor %}", "leaves out or changes the assistant text 'A'"),
        ("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", "leaves out or changes"),
        ("{% for m in messages %}{{ loop.last }}{{ m.content }}{% endfor %}", "message 3, an answer, cannot be told"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "it calls itself without end"),
        ("{{ 'a' * 100000000000 }}", "it takes more memory than a template may"),
        ("{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}{% endgeneration %}", "encloses 1 texts"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_with_the_reason(source, reason):
    with pytest.raises(DataError, match="^mine: ") as refused:
        ChatTemplate(source, "mine").render(SCENE)
    assert reason in str(refused.value)
    assert str(refused.value).endswith(". Another chat template: --chat_template NAME or FILE.")


# As DeepSeek-R1's distilled models have it: reasoning is dropped from every answer, and Qwen3's: from earlier ones.
R1 = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<A>{{ m.content.split('</think>')[-1] }}</s>"
    "{% else %}{{ m.role }}:{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<A>{% endif %}"
)
QWEN3 = R1.replace("{{ m.content.split", "{{ m.content if loop.last else m.content.split")
QWEN3_MARKED = QWEN3.replace("{{ m.content if", "{% generation %}{{ m.content if").replace(
    "</s>", "</s>{% endgeneration %}"
)
THOUGHT = plain_dialogue((("Q", "<think>x</think>a"), ("R", "<think>y</think>b")))


@pytest.mark.parametrize("source", [QWEN3, QWEN3_MARKED])
def test_an_earlier_answer_that_the_template_changes_is_a_sample_as_it_was_served(source):
    first, last = ("user:Q<A>", "<think>x</think>a</s>"), ("user:Q<A>a</s>user:R<A>", "<think>y</think>b</s>")
    assert ChatTemplate(source).render(THOUGHT).samples == [[first], [last]]
    assert ChatTemplate(source).render(THOUGHT, last=True).samples == [[last]]
    assert ChatTemplate(source).render(TWO).samples == [[("user:Q<A>", "A</s>"), ("user:R<A>", "B</s>")]]


def test_an_answer_that_stands_in_its_question_is_changed_all_the_same():
    refused = ChatTemplate(R1, "mine").render_all([plain_dialogue((("<think>x</think>a", "<think>x</think>a"),)), TWO])
    assert "leaves out or changes the assistant text '<think>x</think>a'" in str(refused[0])
    assert refused[1] == ChatTemplate(R1).render(TWO)


FEW = ("llama", "qwen3_thinking")


@pytest.mark.parametrize(
    "name", [one if one in FEW else pytest.param(one, marks=pytest.mark.long) for one in template_names()]
)
def test_our_templates_rendered_once_give_the_answers_of_every_prefix(monkeypatch, name):
    dialogues = [TWO, SCENE, plain_dialogue((("Q\n", " A "),) * 3, "\nS"), plain_dialogue(TURNS[:1])]
    once = find_template(name, None, {"model_type": "llama"})
    rendered = [encode_dialogue(dialogue, characters(once)) for dialogue in dialogues]
    assert chat_template._marked(once.source) != once.source
    monkeypatch.setattr(chat_template, "_marked", lambda source: source)
    prefixes = replace(once)
    assert [encode_dialogue(dialogue, characters(prefixes)) for dialogue in dialogues] == rendered


def test_our_templates_and_those_with_generation_are_rendered_once():
    form = as_jinja("", "{{user}}", "{{bot}}")
    for source in (chat_template._marked(form), MARKED):
        renderer, calls = Renderer(source, {}, []), []
        render = renderer._render
        renderer._render = lambda *args, render=render, calls=calls: calls.append(args) or render(*args)
        dialogue = plain_dialogue(TURNS * 5).as_json() | {"trained": [True] * 20}
        [turns] = renderer.samples(dialogue, last=False)["samples"]
        assert len(turns) == 10 and len(calls) == 1


@pytest.mark.parametrize("name", ["a", "get", "pop", "missing", "__class__"])
def test_keys_of_messages_are_found_as_by_jinjas_own_sandbox(name):
    message = {"a": 1, "get": 2}
    ours, theirs = (kind().getattr(message, name) for kind in (Sandbox, ImmutableSandboxedEnvironment))
    assert ours == theirs and type(ours) is type(theirs)


def test_dialogues_after_one_that_ends_the_process_are_rendered(monkeypatch):
    monkeypatch.setattr(chat_template, "LIMIT_SECONDS", 0.3)
    template = ChatTemplate(SYSTEM_LOOPS, "mine")
    before, endless, *after = template.render_all([TWO, SCENE, TWO, TWO])
    assert "mine: it takes more than 0.3 s for one dialogue" in str(endless)
    assert [before, *after] == [ChatTemplate(CHATML).render(TWO)] * 3
    with pytest.raises(DataError, match="mine: it takes more than 0.3 s for one dialogue"):
        template.render(SCENE)


def characters(template) -> Encoding:
    return Encoding(template, lambda text: list(map(ord, text)), (), 0, 1000, 1000)


def test_a_template_is_given_up_while_forked_processes_run(capfd):
    template = ChatTemplate(CHATML)
    template.render(TWO)
    with Workers(lambda task: task, 2):
        assert template._worker.close() == 0
    assert capfd.readouterr().err == ""


def test_a_forked_process_renders_with_a_process_of_its_own():
    template = ChatTemplate(CHATML)
    rendered = template.render(TWO)
    pid = template._worker._process.pid
    os.kill(pid, signal.SIGINT)  # as Ctrl-C in a terminal, which every process gets
    assert template.render(TWO) and template._worker._process.pid == pid
    with Workers(lambda task: (template.render(TWO), template._worker._process.pid), 2) as workers:
        found = [result for _, result in workers.in_order([SimpleNamespace(size=1)] * 40)]
    assert [turns for turns, _ in found] == [rendered] * 40
    assert template._worker._process.pid not in {pid for _, pid in found}
    assert template.render(TWO) == rendered


def test_a_day_is_the_same_in_training_and_todays_in_use():
    source = "{{ strftime_now('%Y-%m-%d') }}|" + CHATML
    [[(trained, _), _]] = ChatTemplate(source).render(TWO).samples
    used = ChatTemplate(source, today=True).prompt(plain_dialogue((), asked="Q"))
    assert trained.startswith("2024-07-26|") and not used.startswith("2024-07-26|")


def named(directory, config=None, **files) -> str | None:
    """Where the template of a directory with these files is from: the name of the file, and its text."""
    if config is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (directory / name.replace("_DOT_", ".")).write_text(text)
    template = directory_template(directory)
    return template and (template.origin.rpartition("/")[2], template.source)


def test_the_first_that_a_directory_has_is_taken(tmp_path):
    assert named(tmp_path) is None
    assert named(tmp_path, {"eos_token": "</s>"}) is None
    assert named(tmp_path, {"chat_template": CHATML}) == ("tokenizer_config.json", CHATML)
    several = [{"name": "tools", "template": "T"}, {"name": "default", "template": CHATML}]
    assert named(tmp_path, {"chat_template": several}) == ("tokenizer_config.json", CHATML)
    json_form = json.dumps({"chat_template": MARKED})
    assert named(tmp_path, chat_template_DOT_json=json_form) == ("chat_template.json", MARKED)
    assert named(tmp_path, chat_template_DOT_jinja="\ufeffJ") == ("chat_template.jinja", "J")


def test_what_a_directory_has_that_is_no_template_and_its_special_tokens(tmp_path):
    for value, reason in [
        ([{"name": "tools", "template": "T"}], "chat_template has tools, expected one named default"),
        (5, "chat_template: found 5, expected a text or a list of named ones"),
        ({"default": None}, "chat_template: found None, expected a text"),
    ]:
        with pytest.raises(DataError, match="tokenizer_config.json: ") as refused:
            named(tmp_path, {"chat_template": value})
        assert reason in str(refused.value)
    tokens = {"bos_token": "<a>", "eos_token": {"content": "</a>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(tokens))
    named(tmp_path, {"chat_template": "{{ bos_token }}{{ eos_token }}" + CHATML, "bos_token": {"content": "<b>"}})
    before = directory_template(tmp_path).prompt(plain_dialogue((), asked="Q"))
    assert before.startswith("<b></a><|im_start|>user"), "special tokens are those of the directory"


def test_the_order_is_the_flag_then_the_directory_then_the_family(tmp_path):
    config = {"model_type": "llama"}
    assert find_template(None, tmp_path, config).origin == "llama (of the model's family)"
    named(tmp_path, {"added_tokens_decoder": {"5": {"content": "<|start_header_id|>"}}})
    assert find_template(None, tmp_path, config).origin == "llama3 (of the model's family)"
    named(tmp_path, {"chat_template": CHATML})
    assert find_template(None, tmp_path, config).source == CHATML
    assert find_template("qwen2", tmp_path, config).origin == "qwen2 (of --chat_template)"
    (tmp_path / "mine.jinja").write_text(MARKED)
    assert find_template(str(tmp_path / "mine.jinja"), tmp_path, config).source == MARKED
    assert find_template(str(tmp_path), None, config).source == CHATML
    assert find_template("none", tmp_path, config) is None


def test_lines_and_spaces_of_paddlenlps_form_stay(tmp_path):
    form = {"system": "\n s \n", "conversation": ["\n {{user}}\n ", "\n{{bot}}  \n"]}
    (tmp_path / "t.json").write_text(json.dumps(form))
    assert load_template(tmp_path / "t.json").render(TWO).samples == [
        [("\n s \n\n Q\n ", "\nA  \n"), ("\n R\n ", "\nB  \n")],
    ]
