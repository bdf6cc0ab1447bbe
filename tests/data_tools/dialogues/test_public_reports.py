"""Dialogues that public reports say fine-tuners get wrong: rows, samples and refusals as they must be."""

import json
import math

import pyarrow
import pytest
from pyarrow import parquet

from data_tools.dialogues.chat_template import ChatTemplate, load_template
from data_tools.dialogues.datasets import find_sources
from data_tools.dialogues.dialogue import find_schema
from data_tools.dialogues.messages import RowError
from data_tools.dialogues.rows import read_rows
from data_tools.formats.errors import DataError
from data_tools.sft import row_of
from launch.families.encoding import TEMPLATES
from tests.data_tools.dialogues.test_dialogue import said

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Treats reasoning as Qwen3's own template does.
QWEN3 = """{%- set last = namespace(query=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{%- set last.query = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set text = message.content if message.content is string else '' -%}
    {%- if message.role == 'assistant' -%}
        {%- set thought = message.reasoning_content if message.reasoning_content is string else '' -%}
        {%- if not thought and '</think>' in text -%}
            {%- set thought = text.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
            {%- set text = text.split('</think>')[-1].lstrip('\\n') -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- if loop.index0 > last.query and (loop.last or thought) -%}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' -}}
        {%- endif -%}
        {{- text + '<|im_end|>\\n' -}}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\\n' + text + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}
"""
# Opens reasoning in the prompt and drops it from every answer, as DeepSeek-R1's does.
R1 = (
    "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% else %}<A>"
    "{{ m.content.split('</think>')[-1] }}<E>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<A><think>\n{% endif %}"
)
# Writes tools and calls as Hermes and Qwen2.5 do; arguments as a text, as DeepSeek-V3.
TOOLS = (
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}{% for m in messages %}"
    "<{{ m.role[0] }}>{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name + c.function.arguments }}</tool_call>{% endfor %}<E>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def targets(template: str, row: dict, **tokens) -> list[list[str]]:
    """The target texts of each sample of a row."""
    rendered = ChatTemplate(template, "mine", tokens).render(find_schema([row]).read(row))
    return [[answer for _, answer in turns] for turns in rendered.samples]


TWO = said("user", "Q", "assistant", "A", "user", "R", "assistant", "B")


@pytest.mark.parametrize(
    "row",
    [
        *({"messages": [TWO[0], TWO[1] | {key: 0}, TWO[2], TWO[3] | {key: 1}]} for key in ("weight", "loss", "train")),
        {"messages": [TWO[0], TWO[1] | {"label": False}, *TWO[2:]]},
        {"messages": TWO, "loss_mask": [0, 0, 0, 1]},
        {"messages": TWO, "label": [0, 1]},
    ],
)
def test_an_answer_that_is_switched_off_is_read_and_not_trained_on(row):
    assert targets(CHATML, row) == [["B<|im_end|>\n"]]
    again = json.loads(row_of(find_schema([row]).read(row), chat=True))
    assert targets(CHATML, again) == [["B<|im_end|>\n"]], "data-sft keeps what is switched off"


THOUGHT = [TWO[0], TWO[1] | {"reasoning_content": "x"}, TWO[2], TWO[3] | {"reasoning": "y"}]
BLOCKS = [["<think>\nx\n</think>\n\nA<|im_end|>\n"], ["<think>\ny\n</think>\n\nB<|im_end|>\n"]]


def test_reasoning_is_trained_as_it_was_served():
    assert targets(QWEN3, {"messages": THOUGHT}) == BLOCKS, "each in a sample of its own"
    inline = said("user", "Q", "assistant", "<think>x</think>A")
    assert targets(QWEN3, {"messages": inline}) == BLOCKS[:1], "spaces around a block are the template's"
    assert targets(R1, {"messages": THOUGHT[:2]}, eos_token="<E>") == [["x\n</think>\n\nA<E>"]]
    assert targets(R1, {"messages": TWO[:2]}, eos_token="<E>") == [["\n</think>\n\nA<E>"]], "the prompt opens a block"
    has_block = "{# </think> #}" + CHATML
    assert targets(has_block, {"messages": THOUGHT[:2]}) == BLOCKS[:1], "a template with a block and without the key"


@pytest.mark.parametrize("messages", [THOUGHT, said("user", "Q", "assistant", "<think>x</think>A")])
def test_reasoning_is_never_trained_on_behind_a_closed_block_or_dropped(messages):
    dialogue = find_schema([{"messages": messages}]).read({"messages": messages})
    with pytest.raises(DataError, match=r"--chat_template qwen3_thinking, or the model's own template"):
        load_template(TEMPLATES / "qwen3.json").render(dialogue)
    with pytest.raises(DataError, match="closes the block of reasoning"):
        row = {"messages": messages, "enable_thinking": False}
        ChatTemplate(QWEN3).render(find_schema([row]).read(row))
    if messages is THOUGHT:
        with pytest.raises(DataError, match="it has no place for reasoning_content, such as 'x'"):
            ChatTemplate(CHATML).render(dialogue)


TIDE = {"name": "tide_at", "parameters": {"type": "object", "properties": {"hour": {"type": "integer"}}}}
CALL = {"name": "tide_at", "arguments": {"hour": 14}}
OPENAI = {
    "tools": [{"type": "function", "function": TIDE}],
    "messages": [
        {"role": "user", "content": "Q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": CALL | {"arguments": '{"hour": 14}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2.7"},
        {"role": "assistant", "content": "A"},
    ],
}
SHAREGPT = {
    "tools": json.dumps([TIDE]),
    "conversations": [
        {"from": "human", "value": "Q"},
        {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "observation", "value": "2.7"},
        {"from": "gpt", "value": "A"},
    ],
}


TOUCAN = {
    "tools": json.dumps([TIDE]),
    "messages": json.dumps(said("user", "Q", "tool_call", json.dumps(CALL), "tool_response", "2.7", "assistant", "A")),
}
TEXT_CALL = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
RESULT = "<tool_response>\n2.7\n</tool_response>"
HERMES = {"tools": [TIDE], "messages": said("user", "Q", "assistant", TEXT_CALL, "tool", RESULT, "assistant", "A")}


def test_calls_of_xlam_are_the_answer():
    row = {"query": "Q", "answers": json.dumps([CALL, CALL]), "tools": json.dumps([TIDE])}
    once = '<tool_call>tide_at{"hour": 14}</tool_call>'
    assert targets(TOOLS, row, eos_token="<E>") == [[f"{once}{once}<E>"]]
    call = json.dumps(CALL)
    several = said("user", "Q", "tool_call", call, "tool_call", call, "tool_response", "1", "tool_response", "2")
    row = {"tools": [TIDE], "messages": [*several, *said("assistant", "A")]}
    assert targets(TOOLS, row, eos_token="<E>") == [[f"{once}{once}<E>", "A<E>"]], "two at once"


@pytest.mark.parametrize("row", [OPENAI, SHAREGPT, TOUCAN, HERMES])
def test_calls_are_trained_on_and_tools_and_results_are_read(row):
    [turns] = ChatTemplate(TOOLS, tokens={"eos_token": "<E>"}).render(find_schema([row]).read(row)).samples
    called = '<tool_call>tide_at{"hour": 14}</tool_call><E>'
    assert turns == [("tide_at;<u>Q<E><a>", called), ("<t>2.7<E><a>", "A<E>")]
    with pytest.raises(DataError, match="it has no place for calls of tools"):
        ChatTemplate(CHATML).render(find_schema([row]).read(row))


def test_a_template_that_expects_parts_of_a_message_gets_no_null():
    """As those of Qwen3-VL, which look into a content that is no text."""
    parts = TOOLS.replace("{{ m.content or '' }}", "{% for part in m.content %}{{ part }}{% endfor %}")
    assert parts != TOOLS and targets(parts, OPENAI, eos_token="<E>") == targets(TOOLS, OPENAI, eos_token="<E>")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [TWO[0], TWO[1] | {"weight": 0}]}, "none of its answers is to be trained on"),
        ({"messages": [TWO[0], TWO[1] | {"weight": 0.5}]}, "weight is 0.5, expected true or 1 to train on"),
        ({"messages": [TWO[0], TWO[1] | {"weight": "1"}]}, "weight is '1', expected true or 1 to train on"),
        ({"messages": TWO, "loss_mask": [0, 1]}, "'loss_mask' is [0, 1], expected a list of 4 numbers, 0 or 1"),
        ({"messages": [TWO[0], {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "a call has no name"),
        (
            {"messages": [TWO[0], {"role": "assistant", "tool_calls": [CALL | {"arguments": "{"}]}]},
            "tool_calls: arguments of tide_at: no JSON: {",
        ),
        *(
            (
                {"messages": [TWO[0], {"role": "assistant", "tool_calls": [CALL | {"arguments": arguments}]}]},
                "tool_calls: arguments of tide_at have NaN or infinity: ",
            )
            for arguments in ('{"a": NaN}', '{"a": [41e999]}', {"a": math.inf})
        ),
        ({"messages": [TWO[0], {"role": "assistant", "tool_calls": [CALL | {"id": [1]}]}]}, "'id' is"),
        ({"messages": [TWO[0], OPENAI["messages"][2], TWO[1]]}, "tool follows user, expected assistant"),
        (
            {"messages": [*OPENAI["messages"][:2], OPENAI["messages"][2] | {"tool_call_id": "d"}, TWO[1]]},
            "tool_call_id 'd' is of no call before it",
        ),
        ({"messages": said("user", "Q", "assistant", "\u3000")}, "an answer of spaces alone"),
        ({"messages": [said("user", [{"type": "image_url"}])[0], TWO[1]]}, "a part of type 'image_url': models here"),
    ],
)
def test_a_row_that_cannot_be_trained_on_says_why(row, reason):
    with pytest.raises(RowError) as refused:
        find_schema([{"messages": []}]).read(row)
    assert reason in str(refused.value)


def test_rows_with_images_are_refused_and_others_of_the_file_read(write_rows):
    image = {"messages": TWO, "images": ["pier.jpg"]}
    rows = read_rows(write_rows("rows.json", [image, {"messages": TWO, "images": []}]))
    [fault] = rows.faults
    assert len(rows.entries) == 1 and str(fault).endswith("rows.json:1: 'images' is ['pier.jpg']: models here read "
        "text alone. Leave such rows out, or give the text of what they show")  # fmt: skip


def test_a_system_text_that_is_empty_is_one():
    row = {"messages": [{"role": "system", "content": ""}, *TWO]}
    assert find_schema([row]).read(row).messages[0].content == ""


def test_a_printed_list_names_lines_and_packed_files_are_read(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps([{"src": "Q", "tgt": "A"}, {"src": "Q"}], indent=1))
    [fault] = read_rows(tmp_path / "rows.json").faults
    assert fault.line == 6 and "no key 'tgt'" in fault.reason
    for name, form in (("rows.jsonl.gz", "gzip"), ("rows.json.zst", "zstd")):
        with pyarrow.output_stream(str(tmp_path / name), compression=form) as packed:
            packed.write(b'{"src": "Q", "tgt": "A"}\n')
        assert len(read_rows(tmp_path / name).entries) == 1


@pytest.mark.parametrize(("folder", "parts"), [("data", ["train-00000-of-00002", "train-00001-of-00002"]),
                                               ("default/train", ["0000"])])  # fmt: skip
def test_folders_of_a_hub_are_read_as_they_are(tmp_path, folder, parts):
    other = "test-00000-of-00001" if folder == "data" else "../test/0000"
    for part in (*parts, other):
        file = tmp_path / "set" / folder / f"{part}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table({"src": ["Q"], "tgt": ["A"]}), file)
    [source] = find_sources(str(tmp_path / "set"))
    assert [file.stem for file in source.train] == parts and len(source.dev) == 1
    if folder == "data":
        (tmp_path / "set" / folder / f"{parts[1]}.parquet").unlink()
        with pytest.raises(DataError, match=r"train-00001-of-00002.parquet is missing, 1 part in all"):
            find_sources(str(tmp_path / "set"))
    else:
        (tmp_path / "set" / "other").symlink_to(tmp_path / "set" / "default")
        with pytest.raises(DataError, match="has several configurations: default, other. Name the folder of one"):
            find_sources(str(tmp_path / "set"))
