"""How many chats a second become ids and target tokens, beside apply_chat_template of transformers, which makes ids.

    python benchmarks/dialogues.py [--chats 3000]

Chats of one to three turns under ChatML, with a byte-level tokenizer made here. "ours": encode_dialogues, with the
process that renders templates: prompts as served, the border of each answer, labels. Rows a second of processor time,
the best of three. transformers: requirements/compare.txt.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.encoding import Encoding, encode_dialogues
from data_tools.dialogues.messages import Dialogue, plain_dialogue
from data_tools.text.encoders import JsonEncoder
from launch.rehearsal.materials import documents

END = "<|im_end|>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROUNDS = 3


def make_tokenizer(path: Path) -> None:
    """Write a tokenizer.json of 4,096 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|im_start|>", END]
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(islice(documents(), 200), trainer)
    tokenizer.save(str(path))


def chats(count: int) -> list[Dialogue]:
    """Return chats of one to three turns, half of them with a system text."""
    draw, words = random.Random(0), " ".join(islice(documents(), 50)).split()
    say = lambda most: " ".join(draw.choices(words, k=draw.randint(4, most)))  # noqa: E731
    turns = [[(say(30), say(120)) for _ in range(draw.randint(1, 3))] for _ in range(count)]
    return [plain_dialogue(one, say(8) if number % 2 else "") for number, one in enumerate(turns)]


def rows_per_second(count: int, work: Callable[[], object]) -> float:
    """Return the rows per second of processor time, of this process and those that it has ended."""
    best = 0.0
    for _ in range(ROUNDS):
        before = _seconds()
        work()
        best = max(best, count / (_seconds() - before))
    return best


def _seconds() -> float:
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in times)


def main(argv: list[str]) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=3000)
    args = parser.parse_args(argv)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import PreTrainedTokenizerFast

    dialogues = chats(args.chats)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        make_tokenizer(path)
        encoder = JsonEncoder(path)
        theirs = PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token=END, chat_template=CHATML)
    messages = [dialogue.as_json()["messages"] for dialogue in dialogues]
    [end] = encoder.encode_chat(END)

    def ours() -> list[list[int]]:
        template = ChatTemplate(CHATML, "ChatML", {"eos_token": END})
        how = Encoding(template, encoder.encode_chat, (), end, 10**6, 2 * 10**6, locate=encoder.locate_chat)
        ids = [sample.ids for samples in encode_dialogues(dialogues, how) for sample in samples]
        template._worker.close()  # its time counts when it has ended
        return ids

    def transformers() -> list[list[int]]:
        return [theirs.apply_chat_template(one, tokenize=True) for one in messages]

    same = sum(mine == other[: len(mine)] for mine, other in zip(ours(), transformers(), strict=True))
    found = {
        "ours": rows_per_second(args.chats, ours),
        "apply_chat_template": rows_per_second(args.chats, transformers),
    }
    for name, rate in found.items():
        print(f"{name:<20} {rate:8,.0f} rows/s of processor time")
    print(f"ours / apply_chat_template: {found['ours'] / found['apply_chat_template']:.2f}")
    print(f"the same ids: {same:,} of {args.chats:,} chats")


if __name__ == "__main__":
    main(sys.argv[1:])
