"""What Paddle chooses on pretended cards, for test_choices.py."""

import paddle
from paddle.amp import amp_lists
from paddlenlp.transformers.chatglm import modeling as chatglm
from paddlenlp.transformers.chatglm_v2 import modeling as chatglm_v2
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2

from launch.families.registry import family_of
from launch.training.kernel_checks import Heads, attention_errors, flash_attention_of, shapes
from tests.devices.pretended_card import pretended_card

HEADS = 2  # nothing depends on their number


def facts(cases: list, *of_amp) -> dict:
    """Return what each function below finds."""
    return {"kernels": kernels(cases), "amp": amp(*of_amp), "dtypes_of_queries": dtypes_of_queries()}


def kernels(cases: list) -> list:
    """[kernels taken, largest error] for [model type, capability, dtype, head size, masks, tokens of a prefix] each.

    The attentions are those of the start-up check, in the numbers of float32.
    """
    return [_kernels(*case) for case in cases]


def _kernels(model_type: str, capability: list, dtype: str, size: int, masks: bool, prefix: int) -> list:
    attend = flash_attention_of(family_of(model_type))
    with pretended_card(tuple(capability), dtype) as taken:
        found = [
            error
            for shape in shapes(masks, prefix)
            for error in attention_errors(attend, Heads(HEADS, HEADS, size), "float32", shape).values()
        ]
    return [sorted(set(taken)), max(found)]


def dtypes_of_queries() -> dict[str, str]:
    """Of queries in bfloat16, once rotary embeddings made in a model of float32 have turned them; where these take
    the dtype of the queries, of themselves: a CPU cannot add products in bfloat16."""
    x = paddle.ones([1, 4, 2, 8], dtype="bfloat16")  # a batch of one
    positions = paddle.arange(4).unsqueeze(0)

    def of_chatglm():
        embeds = chatglm.RotaryEmbeddings(4)(paddle.stack([positions, positions], axis=1))
        attention = chatglm.ChatGLMAttention(chatglm.ChatGLMConfig(hidden_size=16, num_attention_heads=2))
        by_length = x.transpose([1, 0, 2, 3])
        return attention._core_attention(by_length, by_length, None, embeds)[0]

    def of_chatglm_v2():
        return chatglm_v2.apply_rotary_pos_emb(x.transpose([1, 0, 2, 3]), chatglm_v2.RotaryEmbedding(4)(4).unsqueeze(1))

    turned = {
        "chatglm": of_chatglm(),
        "chatglm_v2": of_chatglm_v2(),
        "llama": llama.LlamaRotaryEmbedding(8)(x, seq_len=4)[0],
        "qwen2": qwen2.Qwen2RotaryEmbedding(8)(x, seq_len=4)[0],
    }
    return {name: str(one.dtype).removeprefix("paddle.") for name, one in turned.items()}


def amp(dtypes: list[str], levels: list[str], operators: list[str]) -> dict:
    """Which of the operators Paddle computes in half precision and which never, by dtype and level."""
    return {
        f"{dtype} {level}": [
            [name for name in operators if name in amp_lists.white_list()[dtype][level]],
            [name for name in operators if name in amp_lists.black_list()[dtype][level]],
        ]
        for dtype in dtypes
        for level in levels
    }
