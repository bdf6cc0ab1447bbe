"""The Modelfile of Ollama beside a GGUF file: where the weights are, the template, what ends an answer, parameters.

Ollama's templates are Go's. Ours is Jinja; where it writes each message by itself, what it puts around each role is
found by rendering, and written down as Go. Another template is left to Ollama, which reads that of the GGUF file.
"""

import re
from pathlib import Path

from data_tools.dialogues.chat_template import ChatTemplate, directory_template
from data_tools.dialogues.messages import Dialogue, Message
from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder
from launch.families.named_configs import read_config
from launch.families.tokenizer_files import read_tokenizer

# Keys of generation_config.json and what Ollama calls them.
PARAMETERS = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
PARAMETERS |= {"repetition_penalty": "repeat_penalty", "max_new_tokens": "num_predict"}
ROLES = ("system", "user", "assistant")
SAID = {role: f"\u241f{role}\u241f" for role in ROLES}


def write_modelfile(source: Path, weights: Path, config: dict) -> None:
    """Write the Modelfile beside the file of weights. source: the model directory that it was made from."""
    lines = [f"FROM ./{weights.name}"]
    template, stops = directory_template(source), _stops(source, config)
    go = _go_template(template, stops) if template and template.trained is not False else None
    lines += [f'TEMPLATE """{go}"""'] if go else []
    generation = read_config(path, "a model") if (path := source / "generation_config.json").is_file() else {}
    stated = {name: generation[key] for key, name in PARAMETERS.items() if isinstance(generation.get(key), int | float)}
    lines += [f"PARAMETER {name} {value}" for name, value in stated.items() if generation.get("do_sample", True)]
    lines.append(f"PARAMETER num_ctx {min(config['max_position_embeddings'], 8192)}")
    lines += [f'PARAMETER stop "{token}"' for token in stops]
    (weights.parent / "Modelfile").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _stops(source: Path, config: dict) -> list[str]:
    """Return the texts of the tokens that end an answer."""
    ids, stated = read_tokenizer(source), config.get("eos_token_id")
    ends = [ids.special["eos"]] if ids and "eos" in ids.special else []
    ends += [end for end in (stated if isinstance(stated, list) else []) if end not in ends]
    return [text for text in (load_encoder(source).decode_chat([end]) for end in ends) if text and '"' not in text]


def _go_template(template: ChatTemplate, stops: list[str]) -> str | None:
    """Return the template in Go; None where it does not write each message by itself, or writes what Go would read.

    What stands between two messages is cut behind the token that ends an answer, with the space that follows it.
    """
    system, user, assistant = (Message(role, text) for role, text in SAID.items())
    try:
        asked = ((user,), (system, user), (system, user, assistant, user))
        bare, short, whole = (template.prompt(Dialogue(one)) for one in asked)
    except DataError:
        return None
    parts = re.split("(\u241f\\w+\u241f)", whole)
    if parts[1::2] != [SAID[role] for role in (*ROLES, "user")] or "{{" in whole:
        return None
    stop = "|".join(map(re.escape, stops)) or "(?!)"
    cuts = [re.fullmatch(rf"((?:.*(?:{stop})\s*)?)(.*)", part, re.DOTALL) for part in parts[2::2]]
    (ends, begins), (ends_user, answers), (ends_answer, again), (ends_last, prompt) = (
        cut.groups() for cut in cuts if cut
    )
    turn = begins + SAID["user"] + ends_user + prompt
    is_same = short == parts[0] + SAID["system"] + ends + turn and bare.endswith(turn)
    if not is_same or (begins, ends_user, answers) != (again, ends_last, prompt):
        return None
    around = {"system": (parts[0], ends), "user": (begins, ends_user), "assistant": (answers, ends_answer)}
    branches = (
        f'if eq .Role "{role}" }}}}{before}{{{{ .Content }}}}{after}' for role, (before, after) in around.items()
    )
    default = bare.removesuffix(turn)
    first = f"{{{{ if not .System }}}}{default}{{{{ end }}}}" if default else ""
    return f"{first}{{{{ range .Messages }}}}{{{{ {'{{ else '.join(branches)}{{{{ end }}}}{{{{ end }}}}{prompt}"
