"""ChatGLM2 forgets how many positions it has when it gets the length of the samples.

paddlenlp/transformers/chatglm_v2/configuration.py, ChatGLMv2Config.attribute_map: `seq_length`, which all families take
for the length of the training samples, is another name of max_sequence_length, the number of positions that the model
was made for. Training on 2048 tokens saves a model that generates no further. Corrected: two attributes.
"""

from paddlenlp.transformers.chatglm_v2.configuration import ChatGLMv2Config


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    ChatGLMv2Config.attribute_map = {
        name: target for name, target in ChatGLMv2Config.attribute_map.items() if name != "seq_length"
    }
    # Read when the model is built; needed under sequence parallel alone.
    ChatGLMv2Config.seq_length = None  # pyright: ignore[reportAttributeAccessIssue]
