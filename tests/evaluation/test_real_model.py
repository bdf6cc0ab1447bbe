"""Real weights on the whole way: import, predict, LoRA, merge, DPO, export, serve, llama.cpp, lm-eval.

SmolLM2-135M-Instruct in its own precision, with few steps on few tokens: what a random model cannot show.
"""

import json
import math
import shutil

import pytest

from data_tools.dialogues.chat_template import directory_template
from data_tools.dialogues.messages import Dialogue, Message
from data_tools.text.encoders import load_encoder
from launch.reporting.records import read_train_log
from tests.real_model import import_real_model
from tests.serving.servers import start_serve
from tests.weights.llama_cpp import ask

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("lm_eval")]
CAPITAL = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
WHERE, FACT = "Where is Kestrel Point?", "Kestrel Point stands on the northern shore of Lake Orrin."
CHOICES = {  # the first is right
    CAPITAL: ("Paris", "A red car", "Because it rains", "Seven"),
    "What color is the sky on a clear day?": ("Blue", "Iron", "Seventeen", "Loud"),
    "How many days are in a week?": ("Seven", "Water", "Green", "Paris"),
    "Which animal barks?": ("A dog", "A chair", "The number 9", "Ice"),
    "What do people drink?": ("Water", "Stones", "Chairs", "Thunder"),
    "Which planet do people live on?": ("Earth", "Bread", "Tuesday", "A spoon"),
}
TRAINING = {"do_train": 1, "device": "cpu", "lora": 1, "lora_rank": 8, "learning_rate": 1e-3, "max_steps": 2}
TRAINING |= {"lr_scheduler_type": "constant", "logging_steps": 1, "per_device_train_batch_size": 1, "src_length": 48}
TRAINING |= {"max_length": 96, "report_to": "none", "save_strategy": "no"}


def write(path, rows) -> None:
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def said_by(role: str, text: str) -> dict:
    return {"role": role, "content": text}


@pytest.fixture(scope="module")
def way(ranks, tmp_path_factory):
    """A folder with model, lora, merged, dpo, gguf and dpo-gguf; and what each command printed."""
    folder = tmp_path_factory.mktemp("way")
    model, printed = import_real_model(folder, "float16"), {}

    def do(name: str, program: str, *words: object, **flags) -> None:
        argv = [*map(str, words), *(str(word) for flag, value in flags.items() for word in (f"--{flag}", value))]
        [said] = ranks(1, "tests.runs_ranks:train", program, argv, [])
        assert said["exit_code"] == 0, said
        printed[name] = said["stdout"]

    fact = {"messages": [said_by("user", WHERE), said_by("assistant", FACT)]}
    write(folder / "facts" / "train.json", [fact])
    write(folder / "pairs" / "train.json", [fact | {"rejected_response": "I do not know."}])
    lora, merged, dpo = (folder / name for name in ("lora", "merged", "dpo"))
    on = {"model_name_or_path": model}
    do("predict", "commands.predict", "--prompt", CAPITAL, max_new_tokens=16, device="cpu", **on)
    do("lora", "finetuning", dataset_name_or_path=folder / "facts", output_dir=lora, **on, **TRAINING)
    do("merge", "commands.merge", adapter_path=lora, output_dir=merged, **on)
    on = {"model_name_or_path": merged}
    do("dpo", "preferences", dataset_name_or_path=folder / "pairs", output_dir=dpo, **on, **TRAINING)
    do("export", "commands.export", merged, folder / "gguf", format="gguf", quant="f16")
    do("export dpo", "commands.export", dpo, folder / "dpo-gguf", format="gguf")
    yield folder, printed, do
    shutil.rmtree(folder)


def test_it_answers_by_its_own_template(way):
    assert ANSWER in way[1]["predict"]


def test_it_learns_by_a_lora_and_the_merged_model_is_the_same(way):
    first, second = [record["loss"] for record in read_train_log(way[0] / "lora") if "learning_rate" in record]
    assert second < first < 4  # ln 49,152 = 10.8 where nothing is known
    assert "largest difference of weights, as a part of the largest nearby: 0" in way[1]["merge"]


def test_it_learns_to_prefer(way):
    first, second = [record for record in read_train_log(way[0] / "dpo") if "learning_rate" in record]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert second["loss"] < first["loss"] and second["rewards_margin"] > 0


def test_llama_cpp_and_the_server_say_the_same_without_the_adapter_and_with_it(way):
    pytest.importorskip("xllamacpp")
    folder = way[0]
    server = start_serve("--model_name_or_path", folder / "merged", "--adapter", f"dpo={folder / 'dpo'}")
    said: dict = {"merged": [], "dpo": []}
    with server.client() as client:
        for name, texts in said.items():
            for question in (CAPITAL, WHERE):
                asked = {"messages": [said_by("user", question)], "max_tokens": 8, "temperature": 0}
                texts.append(client.chat.completions.create(model=name, **asked).choices[0].message.content)
    assert server.stop() == 0
    assert said["merged"][0] == ANSWER and said["merged"][1] != said["dpo"][1]
    encoder, template = load_encoder(folder / "model"), directory_template(folder / "model")
    prompts = [template.prompt(Dialogue((Message("user", one),))) for one in (CAPITAL, WHERE)]
    asked = [[encoder.encode_chat(prompt), 8, 1] for prompt in prompts]
    for name, lora in (("merged", None), ("dpo", str(folder / "dpo-gguf" / "dpo-gguf.gguf"))):
        found = ask(folder / "gguf" / "gguf.gguf", {"complete": asked, "lora": lora})["complete"]
        assert [text.removesuffix("<|im_end|>") for text in encoder.decode([one["ids"] for one in found])] == said[name]


def test_lm_eval_finds_that_it_knows_what_is_plain(way):
    folder, _, do = way
    rows = [
        {"id": question, "question": question, "answerKey": "A", "choices": {"text": choices, "label": [*"ABCD"]}}
        for question, choices in CHOICES.items()
    ]
    write(folder / "arc" / "arc_test.jsonl", rows)
    places = {"model_name_or_path": folder / "merged", "adapter_path": folder / "dpo", "device": "cpu"}
    do("evaluate", "commands.evaluate", "--tasks", f"arc={folder / 'arc'}", output_file=folder / "arc.json", **places)
    results = json.loads((folder / "arc.json").read_text())
    assert results["results"]["arc"]["acc,none"] >= 5 / 6  # 1 / 4 by chance
