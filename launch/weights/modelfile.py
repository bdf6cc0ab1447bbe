"""The Modelfile of Ollama beside a GGUF file: where the weights are, the template, what ends an answer, parameters.

Ollama's templates are Go's. Ours is Jinja; where it writes each message by itself, what it puts around each role is
found by rendering, and written down as Go. Another template is left to Ollama, which reads that of the GGUF file.
"""

from pathlib import Path

from data_tools.dialogues.chat_template import ChatTemplate, directory_template
from data_tools.dialogues.messages import Dialogue, Message
from data_tools.formats.errors import DataError
from launch.families.named_configs import read_config
from launch.families.tokenizer_files import read_tokenizer

# Keys of generation_config.json and what Ollama calls them.
PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repeat_penalty",
    "max_new_tokens": "num_predict",
}
ROLES = ("system", "user", "assistant")
CONTENT = "{{ .Content }}"


def write_modelfile(source: Path, weights: Path, config: dict) -> None:
    """Write the Modelfile beside the file of weights. source: the model directory that it was made from."""
    lines = [f"FROM ./{weights.name}"]
    template = directory_template(source)
    stops = _stops(source, config)
    around = _around(template, stops) if template and template.trained is not False else None
    if around:
        lines.append(f'TEMPLATE """{go_template(*around)}"""')
    generation = read_config(path, "a model") if (path := source / "generation_config.json").is_file() else {}
    for key, name in PARAMETERS.items():
        if isinstance(generation.get(key), int | float) and generation.get("do_sample", True):
            lines.append(f"PARAMETER {name} {generation[key]}")
    lines.append(f"PARAMETER num_ctx {min(config['max_position_embeddings'], 8192)}")
    lines += [f'PARAMETER stop "{token}"' for token in stops]
    (weights.parent / "Modelfile").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _stops(source: Path, config: dict) -> list[str]:
    """Return the texts of the tokens that end an answer."""
    from data_tools.text.encoders import load_encoder

    ids, stated = read_tokenizer(source), config.get("eos_token_id")
    ends = [ids.special["eos"]] if ids and "eos" in ids.special else []
    ends += [end for end in (stated if isinstance(stated, list) else []) if end not in ends]
    return [text for text in (load_encoder(source).decode_chat([end]) for end in ends) if text and '"' not in text]


def go_template(around: dict[str, tuple[str, str]], default_system: str, prompt: str) -> str:
    """Return a Go template. around: text before and after each role's message. prompt: what an answer follows."""
    branches = "{{ else ".join(
        f'{"{{ " if number == 0 else ""}if eq .Role "{role}" }}}}{around[role][0]}{CONTENT}{around[role][1]}'
        for number, role in enumerate(ROLES)
    )
    first = f"{{{{ if not .System }}}}{default_system}{{{{ end }}}}" if default_system else ""
    return f"{first}{{{{ range .Messages }}}}{branches}{{{{ end }}}}{{{{ end }}}}{prompt}"


def _around(template: ChatTemplate, stops: list[str]) -> tuple[dict[str, tuple[str, str]], str, str] | None:
    """Return what stands around each role's message, before a dialogue without a system message, and before an answer.

    None where the template does not write each message by itself, or writes what Go would read.
    """
    said = {role: f"\u241f{role}\u241f" for role in ROLES}
    system, user, assistant = (Message(role, said[role]) for role in ROLES)
    try:
        bare, one, whole = (
            template.prompt(Dialogue(tuple(messages)))
            for messages in ([user], [system, user], [system, user, assistant, user])
        )
    except DataError:
        return None
    if any(whole.count(text) != count for text, count in zip(said.values(), (1, 2, 1), strict=True)) or "{{" in whole:
        return None
    head, rest = one.split(said["system"], 1)
    between, prompt = rest.split(said["user"], 1)
    # Of [..., user, assistant, user]: behind the first user's message, and behind the assistant's.
    after_user, behind = whole.split(said["system"], 1)[1].split(said["user"], 1)[1].split(said["assistant"], 1)
    before_user_again = behind.split(said["user"], 1)[0]
    for cut in _cuts(prompt, stops):  # where the user's message ends and the prompt begins
        user_end, before_answer = prompt[:cut], prompt[cut:]
        if not after_user.startswith(user_end) or not after_user[cut:]:
            continue
        for place in _cuts(between, stops):
            around = {
                "system": (head, between[:place]),
                "user": (between[place:], user_end),
                "assistant": (after_user[cut:], behind[: len(before_user_again) - len(between[place:])]),
            }
            composed = "".join(
                around[role][0] + said[role] + around[role][1] for role in ("system", "user", "assistant", "user")
            )
            alone = around["user"][0] + said["user"] + user_end + before_answer
            if composed + before_answer == whole and around["assistant"][0] == before_answer and bare.endswith(alone):
                return around, bare[: len(bare) - len(alone)], before_answer
    return None


def _cuts(text: str, stops: list[str]) -> list[int]:
    """Return the places where a message may end within a text: first behind a token that ends an answer."""
    ends = [text.rindex(stop) + len(stop) for stop in stops if stop in text]
    return [*(len(text) - len(text[end:].lstrip()) for end in ends), *range(len(text) + 1)]
