"""What training makes of dialogues that a server is asked about. For a rank."""

from types import SimpleNamespace


def training_prompts(model: str, template: str, rows: list[dict]) -> list[list[int]]:
    """Of each row the ids before its last answer, by training's own encoding."""
    from data_tools.dialogues.encoding import encode_dialogue
    from data_tools.dialogues.messages import read_dialogue
    from data_tools.dialogues.questions import last_answer
    from launch.families.encoding import encoding_of
    from launch.families.named_configs import load_config
    from launch.training.model import open_tokenizer
    from launch.upstream import correct

    correct()
    flags = SimpleNamespace(chat_template=template, src_length=10**4, max_length=2 * 10**4)
    encoding = encoding_of(flags, open_tokenizer("model_name_or_path", model), load_config(model), chat=True)
    found = []
    for row in rows:
        dialogue = read_dialogue(row["messages"], row.get("tools"), row.get("chat_template_kwargs"))
        *_, sample = encode_dialogue(dialogue, encoding)
        found.append(sample.ids[: last_answer(sample.labels)[0]])
    return found


def predicted(model: str, template: str, answer: str) -> dict:
    """The ids that end answers; whether a prompt opens or closes a block of reasoning; a row with an answer's parts."""
    from pathlib import Path

    from data_tools.dialogues.chat_template import load_template
    from launch.prediction.predictor import load_predictor
    from launch.prediction.predictor import predicted as keys_of

    predictor = load_predictor(model, None, None)

    def reading(prompt: str):
        ids = predictor.tokenizer.encode(prompt, add_special_tokens=False)["input_ids"]
        return predictor.reading(load_template(Path(template)), ids, {"tide_at": {}})

    readings = [reading(prompt) for prompt in ("a", "a<think>\n", "a<think>\n\n</think>\n\n")]
    ways = [[one.reasons, one.opened] for one in readings]
    return {"ends": list(predictor.ends), "ways": ways, "row": keys_of(readings[1], answer)}
