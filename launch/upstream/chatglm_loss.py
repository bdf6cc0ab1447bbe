"""ChatGLM-6B's loss is too small by the share of ignored labels, on one process but not under tensor parallel.

paddlenlp/transformers/chatglm/modeling.py, ChatGLMForCausalLM.forward: the mean of paddle's cross_entropy divides by
the number of all labels, those of ignore_index -100 among them (it leaves them out for a positive ignore_index only):
where a prompt is as long as its answer, loss and gradient are half of what they should be. Corrected: the mean over
labels other than -100, as under tensor parallel and in all other families.
"""

from paddlenlp.transformers.chatglm.modeling import ChatGLMForCausalLM

from launch.upstream.token_loss import with_token_loss


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not hasattr(ChatGLMForCausalLM.forward, "__wrapped__"):
        ChatGLMForCausalLM.forward = with_token_loss(ChatGLMForCausalLM.forward)
