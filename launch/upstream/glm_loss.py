"""GLM's loss fails under tensor parallel and is no mean.

paddlenlp/transformers/glm/modeling.py, GLMForConditionalGeneration.forward: calls `self.parallel_loss_fun`, a misspelt
name, where the vocabulary is sharded; elsewhere returns one loss a token, ignored labels among them, unless it is
given a loss_mask. Corrected: the mean over labels other than -100, as all other families.
"""

from paddlenlp.transformers.glm.modeling import GLMForConditionalGeneration

from launch.upstream.token_loss import with_token_loss


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not hasattr(GLMForConditionalGeneration.forward, "__wrapped__"):
        GLMForConditionalGeneration.forward = with_token_loss(GLMForConditionalGeneration.forward)
