"""Chats to ids and target tokens in one checkout, for benchmarks/dialogues.py, which starts it.

    python benchmarks/dialogues_worker.py CHECKOUT FOLDER    # with tokenizer.json and chats.json

The answer is {"rate": rows a second of processor time, "samples": [[ids, labels], ...]}.
"""

import json
import os
import resource
import sys
from pathlib import Path

sys.path[0] = sys.argv[1]
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from data_tools.text.encoders import JsonEncoder

try:
    from data_tools.dialogues.chat_template import ChatTemplate
    from data_tools.dialogues.encoding import Encoding, encode_dialogues
    from data_tools.dialogues.messages import plain_dialogue
except ImportError:  # commit 47219ee4, before there were messages
    from data_tools.formats.dialogues.chat_template import ChatTemplate
    from data_tools.formats.dialogues.dialogue import Dialogue, Turn
    from data_tools.formats.dialogues.encoding import (
        Encoding,
        encode_dialogues,
    )

    def plain_dialogue(turns, system):
        """Return a dialogue as that commit has it."""
        return Dialogue(tuple(Turn(*turn) for turn in turns), system)


def seconds() -> float:
    """Return the processor time of this process and those that it has ended."""
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in times)


def main() -> None:
    """Answer on the standard output."""
    folder = Path(sys.argv[2])
    job = json.loads((folder / "chats.json").read_text())
    dialogues = [plain_dialogue(turns, system) for turns, system in job["chats"]]
    encoder = JsonEncoder(folder / "tokenizer.json")
    [end] = encoder.encode_chat(job["end"])
    before = seconds()
    template = ChatTemplate(job["template"], "ChatML", {"eos_token": job["end"]})
    locates = {"locate": encoder.locate_chat} if hasattr(encoder, "locate_chat") else {}
    how = Encoding(template, encoder.encode_chat, (), end, 10**6, 2 * 10**6, **locates)
    samples = [one for found in encode_dialogues(dialogues, how) if isinstance(found, list) for one in found]
    found = [(sample.ids, sample.labels) for sample in samples]
    template._worker.close()  # its time counts when it has ended
    rate = len(dialogues) / (seconds() - before)
    print(json.dumps({"rate": rate, "samples": found}))


if __name__ == "__main__":
    main()
