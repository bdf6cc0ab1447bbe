"""ChatGLM2 under pipeline parallel starts from random weights, with a warning alone.

paddlenlp/transformers/chatglm_v2/modeling_pp.py, ChatGLMv2ForCausalLMPipe: its layers are named "embedding",
"encoder.layers.0", ..., those of the files and of the model on one process "chatglm_v2.embedding", ...: nothing is
found, and what it saves no other layout can read. Corrected: the names are the model's.
"""

from paddlenlp.transformers import ChatGLMv2ForCausalLMPipe
from paddlenlp.transformers.model_utils import PipelinePretrainedModel


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    ChatGLMv2ForCausalLMPipe.add_sequential_layer = _add_sequential_layer


def _add_sequential_layer(self, layer_desc, name_prefix: str = "") -> None:
    PipelinePretrainedModel.add_sequential_layer(self, layer_desc, f"chatglm_v2.{name_prefix}")
