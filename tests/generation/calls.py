"""Calls as a model of each form writes them."""

import json

from launch.generation.answer_parts import CallForm


def written_call(form: CallForm, name: str, arguments: dict) -> str:
    """A call whole, as a grammar writes it."""
    text = json.dumps(arguments, ensure_ascii=False)
    if form.argument:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
        text = "".join(form.argument.replace("KEY", key).replace("VALUE", one) for key, one in texts.items())
    return form.call.replace("QUOTED", json.dumps(name)).replace("NAME", name).replace("ARGUMENTS", text)
