"""Published chat templates render here as in transformers, and what is trained on is what they enclose."""

import json
import random
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.messages import Dialogue, read_dialogue
from data_tools.formats.errors import DataError
from launch.generation.answer_parts import Reading, find_form, read_whole
from tests.data_tools.dialogues.published import KINDS, MISTRAL_TOOLS, Kind

# The templates of TRL 1.16.0, whose wheel `make test-nightly` downloads and nobody installs.
WHEELS = list(Path(sys.prefix, "templates").glob("trl-1.16.0-*.whl"))
TRL = {
    Path(name).stem: zipfile.ZipFile(wheel).read(name).decode()
    for wheel in WHEELS
    for name in zipfile.ZipFile(wheel).namelist()
    if name.endswith(".jinja")
}
QWEN = {"qwen": (Path(__file__).parents[2] / "serving" / "qwen_like.jinja").read_text()}  # thinks as Qwen3's does
SOURCES = TRL | {name: kind.source for name, kind in KINDS.items()} | MISTRAL_TOOLS | QWEN
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ENDS = {"phi3": ("<|end|>",), "phi3_5": ("<|end|>",)}  # of eos_token_id in these models' generation_config.json
SHAPE = {
    "type": "object",
    "properties": {"port": {"type": "string"}, "hour": {"type": "integer"}},
    "required": ["port"],
}
TOOLS = [{"type": "function", "function": {"name": "tide_at", "description": "Height of tide", "parameters": SHAPE}}]
SYSTEMS = ("You serve.", "", " Be brief.\n", "港口")
ANSWERS = ("A.", "在车站后面。", "ok\n", "`code`", "</s> <|im_end|>")


def drawn(draw: random.Random) -> Dialogue:
    return read_dialogue(*drawn_row(draw).values())


def drawn_row(draw: random.Random) -> dict:
    """A row of 1 to 8 turns: with tools or without, with reasoning or without, a system text, none or an empty one."""
    messages: list[dict] = []
    if draw.random() < 0.4:
        messages.append({"role": "system", "content": draw.choice(SYSTEMS)})
    calls, thinks = draw.random() < 0.35, draw.random() < 0.35
    for turn in range(draw.randint(1, 8)):
        question = draw.choice((f"Q{turn}?", "港口在哪里？", "  two spaces", "x\ny", "<b>&amp;", "<s>[INST]"))
        messages.append({"role": "user", "content": question})
        if calls and draw.random() < 0.5:
            ids = [f"abcd{turn:02d}{number:03d}" for number in range(draw.randint(1, 2))]
            made = [{"name": "tide_at", "arguments": json.dumps({"port": "Orrin", "hour": turn})} for _ in ids]
            named = [{"id": one, "type": "function", "function": call} for one, call in zip(ids, made, strict=True)]
            messages.append({"role": "assistant", "content": None, "tool_calls": named})
            messages += [{"role": "tool", "tool_call_id": one, "name": "tide_at", "content": "2.7"} for one in ids]
        answer = {"role": "assistant", "content": draw.choice(ANSWERS)}
        thought = {"reasoning_content": draw.choice(("30 / 12", "think é\nmore"))}
        messages.append(answer | (thought if thinks and draw.random() < 0.7 else {}))
    return {"messages": messages, "tools": TOOLS if calls else None}


def rendered(source: str, dialogue: Dialogue, asks: bool) -> tuple[str, list] | None:
    """The text of transformers and the places that the template encloses; None where the template refuses it."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    values = dialogue.as_json()
    marks = not asks and "endgeneration" in source
    options = {"chat_template": source, "tools": values.get("tools"), "add_generation_prompt": asks}
    try:
        texts, places = render_jinja_template(
            [values["messages"]], return_assistant_tokens_mask=marks, **options, **TOKENS
        )
    except (TemplateError, TypeError):
        return None
    return texts[0], [tuple(place) for place in places[0]] if marks else []


@pytest.mark.nightly
@pytest.mark.parametrize("name", SOURCES)
def test_texts_and_masks_are_those_of_transformers(name):
    """500 seeded dialogues. What serving renders is equal for each; a sample is the text up to its answer's end, or,
    where the prompt opens or closes what the text of a whole dialogue has otherwise, the prompt and the answer."""
    draw = random.Random(name)
    source, ends = SOURCES[name], (KINDS[name].end,) if name in KINDS else ENDS.get(name, ())
    template = ChatTemplate(source, name, TOKENS, today=True, ends=ends)
    dialogues = [drawn(draw) for _ in range(500)]
    asked = [replace(one, messages=one.messages[:-1]) for one in dialogues]
    prompts, samples = template.prompts(asked), template.render_all(dialogues)
    compared = 0
    for dialogue, asking, prompt, found in zip(dialogues, asked, prompts, samples, strict=True):
        served, whole = rendered(source, asking, asks=True), rendered(source, dialogue, asks=False)
        if isinstance(prompt, str) and served:
            assert prompt == served[0]
        if isinstance(found, DataError) or not whole:
            continue
        compared += 1
        answers = sum(message.role == "assistant" for message in dialogue.messages)
        has_all = all(message.reasoning in whole[0] for message in dialogue.messages)
        if whole[1] and len(found.samples) == 1 and has_all:  # else reasoning is put in as text
            [turns] = found.samples
            assert places(turns) == whole[1], "what {% generation %} encloses"
        else:
            assert sum(map(len, found.samples)) == answers, "each answer is trained on once"
        text = "".join(before + said for before, said in found.samples[-1])
        ends_as_served = isinstance(prompt, str) and text.startswith(prompt)
        assert ends_as_served or (whole[0].startswith(text) and "endgeneration" in source)
    assert compared > 50 or "image" in source or "vl" in name


def writes_calls(name: str) -> bool:
    """Whether a template offers tools and writes calls in a form that is known here."""
    return bool(find_form(TRL[name])) and "tools" in TRL[name] and "muse" not in name


@pytest.mark.nightly
@pytest.mark.skipif(not TRL, reason="needs TRL's wheel: make test-nightly downloads it")
@pytest.mark.parametrize("name", [*filter(writes_calls, TRL)] or ["none"])
def test_calls_that_a_template_writes_are_read_back(name):
    """The answer that training learns is what the server reads as these calls."""
    arguments = [{"port": "Orrin 港", "hour": 5}, {"port": 'a "b"\n<c>', "hour": -1}]
    made = [{"id": "abcd00000", "function": {"name": "tide_at", "arguments": one}} for one in arguments]
    form = find_form(TRL[name])
    several = made if form.several and "llama3" not in name else made[:1]  # LLaMA-3's template refuses two
    asked = {"role": "user", "content": "Q?"}
    for calls in (made[:1], several):
        dialogue = read_dialogue([asked, {"role": "assistant", "content": None, "tool_calls": calls}], TOOLS)
        [[(_, answer)]] = ChatTemplate(TRL[name], name, TOKENS, ends=ENDS.get(name, ())).render(dialogue).samples
        answer = answer.removesuffix("<|eot_id|>")  # a server leaves out the end
        _, _, read = read_whole(Reading(form, {"tide_at": SHAPE}, reasons=True), answer)
        assert [(call.name, json.loads(call.arguments)) for call in read] == [
            ("tide_at", call["function"]["arguments"]) for call in calls
        ], answer


def said(*texts: str, system: str = "") -> list[dict]:
    """Questions and answers in turn; of an answer "so|A." the first part is its reasoning."""
    messages = [{"role": "system", "content": system}] if system else []
    for number, text in enumerate(texts):
        thought, _, content = text.rpartition("|")
        message = {"role": "assistant" if number % 2 else "user", "content": content}
        messages.append(message | ({"reasoning_content": thought} if thought else {}))
    return messages


CALLED = {"id": "abcd00000", "function": {"name": "tide_at", "arguments": {"port": "Orrin", "hour": 5}}}
DIALOGUES = {
    "system": said("Q", "A.", system="S."),
    "two turns": said("Q", "A.", "R", "B."),
    "spaces": said("Q", "\u6e2f \n"),
    "tools": [
        *said("Q"),
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "abcd00000", "name": "tide_at", "content": "2.7"},
        {"role": "assistant", "content": "A."},
    ],
    "reasoning": said("Q", "so|A."),
    "reasoning that is cut": said("Q", "so|A.", "R", "then|B."),
}
# By hand, from the text of each template that has no form with {% generation %} among TRL's: what is trained on, by
# sample. None: refused, because the template has no place for reasoning, which nobody may lose silently.
REFUSED: list = [None, None]
LLAMA = [[["A.<E>"]], [["A.<E>", "B.<E>"]], [["\u6e2f<E>"]]]
LLAMA += [[['{"name": "tide_at", "parameters": {"port": "Orrin", "hour": 5}}<E>', "A.<E>"]], *REFUSED]
LFM = [[["A.<E>\n"]], [["A.<E>\n", "B.<E>\n"]], [["\u6e2f \n<E>\n"]]]
LFM += [[["<|tool_call_start|>[tide_at(port='Orrin', hour=5)]<|tool_call_end|><E>\n", "A.<E>\n"]]]
LFM += [[["<think>so</think>A.<E>\n"]], [["<think>so</think>A.<E>\n"], ["<think>then</think>B.<E>\n"]]]
GEMMA = [[["A.<E>\n"]], [["A.<E>\n", "B.<E>\n"]], [["\u6e2f<E>\n"]]]
CALL = '<|tool_call>call:tide_at{hour:5,port:<|"|>Orrin<|"|>}<tool_call|>'
GEMMA_2 = [*GEMMA, [[f"{CALL}<E>\n", "A.<E>\n"]], *REFUSED]
GEMMA_3 = [*GEMMA, [[f"{CALL}<|tool_response>", "A.<E>\n"]], *REFUSED]
THOUGHT = "<|channel>thought\n%s\n<channel|>%s<E>\n"
GEMMA_5 = [*GEMMA_3[:4], [[THOUGHT % ("so", "A.")]], [[THOUGHT % ("so", "A.")], [THOUGHT % ("then", "B.")]]]
MASKS = {"llama3_1": LLAMA, "llama3_2": LLAMA, "lfm2_2_5": LFM, "lfm2_2_5_v2": LFM, "lfm2_2_5_vl": LFM}
MASKS |= {"gemma4": GEMMA_3, "gemma4_v2": GEMMA_2, "gemma4_v3": GEMMA_3, "gemma4_v4": GEMMA_3, "gemma4_v5": GEMMA_5}
MASK_ENDS = {"llama": "<|eot_id|>", "lfm2": "<|im_end|>", "gemma": "<turn|>", "mistral": "</s>", "qwen": "<|im_end|>"}
CALL = '[TOOL_CALLS] [{"name": "tide_at", "arguments": {"port": "Orrin", "hour": 5}, "id": "abcd00000"}]<E>'
MISTRAL = [[[" A.<E>"]], [[" A.<E>", " B.<E>"]], [[" \u6e2f \n<E>"]], [[CALL, " A.<E>"]], *REFUSED]
TEKKEN = [[["A.<E>"]], [["A.<E>", "B.<E>"]], [["\u6e2f \n<E>"]], [[CALL.replace("] [", "]["), "A.<E>"]], *REFUSED]
BLOCK = "<think>\n%s\n</think>\n\n%s<E>\n"  # which the template drops from an answer that is not the last
CALL = '<tool_call>\n{"name": "tide_at", "arguments": {"port": "Orrin", "hour": 5}}\n</tool_call>'
THINKS = [[[BLOCK % ("", "A.")]], [[BLOCK % ("", "A.")], [BLOCK % ("", "B.")]], [[BLOCK % ("", "\u6e2f \n")]]]
THINKS += [[[BLOCK % ("", CALL)], [BLOCK % ("", "A.")]]]
THINKS += [[[BLOCK % ("so", "A.")]], [[BLOCK % ("so", "A.")], [BLOCK % ("then", "B.")]]]
OWN = {"mistral-v3": MISTRAL, "mistral-v7-tools": MISTRAL, "mistral-tekken": TEKKEN, "qwen": THINKS}
NEEDS_TRL = [
    pytest.mark.nightly,
    pytest.mark.skipif(not TRL, reason="needs TRL's wheel: make test-nightly downloads it"),
]


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=NEEDS_TRL) for name in MASKS),
        *(pytest.param(name, marks=pytest.mark.long) for name in OWN),
    ],
)
def test_what_is_trained_on_is_what_a_reader_of_the_template_expects(name):
    end = next(end for family, end in MASK_ENDS.items() if name.startswith(family))
    template = ChatTemplate(SOURCES[name], name, TOKENS | {"eos_token": end})
    for (kind, messages), expected in zip(DIALOGUES.items(), (MASKS | OWN)[name], strict=True):
        dialogue = read_dialogue(messages, TOOLS if kind == "tools" else None)
        if expected is None:
            with pytest.raises(DataError, match="no place for reasoning_content, such as 'so'"):
                template.render(dialogue)
            continue
        found = [[answer for _, answer in sample] for sample in template.render(dialogue).samples]
        assert found == [[text.replace("<E>", end) for text in sample] for sample in expected], kind


NO_TOOLS, NO_REASONING = "no place for calls of tools", "no place for reasoning_content, such as 'so'"


def expected_of(kind: Kind, messages: list[dict], name: str) -> list[tuple[str, str]] | str:
    """Return the turns, or a part of the reason for which there are none."""
    if name == "tools" or any("reasoning_content" in message for message in messages):
        return NO_TOOLS if name == "tools" else NO_REASONING
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    if system is not None and not kind.merged and kind.system in ("", "!"):
        return "it says: no system" if kind.system else "it leaves out or changes the system text 'S.'"
    return kind.turns(system, [message["content"] for message in messages[system is not None :]])


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_each_published_kind_is_trained_on_as_its_row_says(name):
    kind = KINDS[name]
    template = ChatTemplate(kind.source, name, {}, ends=(kind.end,) if kind.end else ())
    dialogues = [read_dialogue(messages, TOOLS if one == "tools" else None) for one, messages in DIALOGUES.items()]
    for (one, messages), found in zip(DIALOGUES.items(), template.render_all(dialogues), strict=True):
        expected = expected_of(kind, messages, one)
        if isinstance(found, DataError):
            assert isinstance(expected, str) and expected in str(found), one
        else:
            assert found.samples == [expected], one


@pytest.mark.long
def test_an_answer_keeps_an_end_that_looks_like_a_prompt():
    source = "{% for m in messages %}{{ m.content }}###{% endfor %}"  # as DialoGPT's, with </s>
    assert ChatTemplate(source).render(read_dialogue(said("Q", "A", "R", "B"))).samples == [
        [("Q###", "A###"), ("R###", "B###")]
    ]


def test_all_kinds_have_a_mask_by_an_authority_or_by_hand():
    """Those with {% generation %} by transformers, above."""
    apart = {name.removesuffix("_training") for name in TRL if name.endswith("_training")}
    assert {name for name in TRL if not name.endswith("_training")} - apart == (set(MASKS) if TRL else set())


def places(turns: list[tuple[str, str]]) -> list[tuple[int, int]]:
    """Where the answers of a sample stand."""
    found, end = [], 0
    for before, said in turns:
        found.append((end + len(before), end + len(before) + len(said)))
        end = found[-1][1]
    return found
