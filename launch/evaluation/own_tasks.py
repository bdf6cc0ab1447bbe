"""Tasks in lm-eval's form that it does not ship: answers in words to questions of one's own, SQuAD, CMRC, and texts.

Prompts are those of its tasks squadv2 and xquad_zh, measures those of its mlqa, which are SQuAD's script and MLQA's for
Chinese, and of its wikitext.
"""

# pyright: reportMissingImports=false

import math
from collections.abc import Callable, Iterable

from lm_eval.api.metrics import bits_per_byte, weighted_perplexity
from lm_eval.api.task import ConfigurableTask

from data_tools.formats.benchmarks.published import BEFORE
from data_tools.formats.han import are_chinese

TEXT = "text"
SQUAD = "{% if title %}Title: {{title}}\n\n{% endif %}Background: {{context}}\n\nQuestion: {{question}}\n\nAnswer:"
# From the name of a form to its prompt, the texts that end an answer, and whether answers are Chinese; None: as most.
PROMPTS = {
    "squad": (SQUAD, ["\n"], False),
    "cmrc": ("语境: {{context}}\n\n问题: {{question}}\n\n回答:", ["\n"], True),
    "qa": ("{% if context %}{{context}}\n\n{% endif %}Question: {{question}}\nAnswer:", ["\n\n"], None),
    "pairs": ("{{question}}", [], None),
    "advertisegen": ("{{question}}", [], None),
    # Without a chat template; with one, DialogueTask has the messages themselves.
    "chat": (
        f"{{% for said in {BEFORE} if said.content %}}{{{{said.content}}}}\n\n{{% endfor %}}{{{{question}}}}",
        [],
        None,
    ),
}


class DialogueTask(ConfigurableTask):
    """A task whose rows may have a system text and earlier turns, which a chat template gets as a server gets them."""

    def fewshot_context(self, doc: dict, *given, chat_template: Callable | None = None, **more) -> str | list[str]:
        """Return the text before an answer: a row's system text, the examples, its earlier turns, its question."""
        before = doc.get(BEFORE)
        if not before or chat_template is None:
            return super().fewshot_context(doc, *given, chat_template=chat_template, **more)
        head = 0 if before[0]["role"] == "user" else 1
        asked = [*before[head:], {"role": "user", "content": doc["question"]}]

        def with_turns(messages: list[dict], **options) -> str:
            return chat_template([*before[:head], *messages[:-1], *asked], **options)

        return super().fewshot_context(doc, *given, chat_template=with_turns, **more)


def written_task(name: str, answers: Iterable[str]) -> dict:
    """Return the configuration of one of PROMPTS.

    Args:
        answers: The right ones to all questions, for their language.
        name: Of the prompt.
    """
    from lm_eval.tasks.mlqa.utils import process_results_en, process_results_zh

    prompt, until, chinese = PROMPTS[name]
    scores = process_results_zh if chinese or chinese is None and are_chinese(answers) else process_results_en

    def measures(doc: dict, results: list[str]) -> dict:
        found = scores(doc, results)  # its f1 of nothing with nothing is 0
        return {"exact_match": int(found["exact_match"]), "f1": float(max(found.values()))}

    return {
        "task": name,
        "metadata": {"version": 1},
        "output_type": "generate_until",
        "test_split": "test",
        "doc_to_text": prompt,
        "doc_to_target": lambda doc: doc["answers"][0],
        "process_results": measures,
        "generation_kwargs": {"until": until, "do_sample": False},
        "metric_list": [
            {"metric": measure, "aggregation": "mean", "higher_is_better": True} for measure in ("exact_match", "f1")
        ],
    }


def _perplexity(items: list[tuple[float, int]]) -> float:
    """Return the perplexity; infinity where no float can hold it: a Chinese text is one word."""
    try:
        return weighted_perplexity(items)
    except OverflowError:
        return math.inf


TEXT_TASK = {
    "task": TEXT,
    "metadata": {"version": 1},
    "output_type": "loglikelihood_rolling",
    "test_split": "test",
    "doc_to_text": "",
    "doc_to_target": "text",
    "num_fewshot": 0,
    "metric_list": [
        {"metric": measure, "aggregation": aggregation, "higher_is_better": False}
        for measure, aggregation in (
            ("word_perplexity", _perplexity),
            ("byte_perplexity", _perplexity),
            ("bits_per_byte", bits_per_byte),
        )
    ],
}
