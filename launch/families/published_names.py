"""Names under which models are published, and the configuration here that has their sizes: enough to plan and rehearse.

Not every published name has one: these are the models that PaddleNLP's files of arguments name (llm/config/).
"""

from pathlib import Path

SIZES = {
    "baichuan-inc/Baichuan2-7B-Base": "baichuan2-7b",
    "bigscience/bloomz-7b1-mt": "bloom-7b1",
    "meta-llama/Llama-2-7b": "llama-2-7b",
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",
    "Qwen/Qwen2-7B": "qwen2-7b",
    "Qwen/Qwen2.5-0.5B": "qwen2.5-0.5b",
    "Qwen/Qwen2.5-0.5B-Instruct": "qwen2.5-0.5b",
}


def named_size(model_name_or_path: str) -> str:
    """The configuration here with the sizes of a published model; any other name, and a directory, as it is."""
    if Path(model_name_or_path).is_dir():
        return model_name_or_path
    return SIZES.get(model_name_or_path, model_name_or_path)
