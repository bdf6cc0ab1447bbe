"""OPT's output head is a second matrix of its own, random after weights are loaded.

paddlenlp/transformers/opt/modeling.py, OPTForCausalLM: `lm_head.decoder_weight` is created apart from the word
embedding that OPT shares with it (arXiv 2205.01068; `tie_word_embeddings` of every published OPT), is no part of any
published file, is of the wrong width where word_embed_proj_dim differs, and is whole on every tensor parallel rank.
Corrected: the head is the word embedding, sharded as it is, with the loss that goes with it.
"""

import functools

from paddlenlp.transformers.bloom.modeling import parallel_matmul
from paddlenlp.transformers.model_outputs import ModelOutput
from paddlenlp.transformers.opt.modeling import OPTForCausalLM, OPTLMHead

from launch.upstream.token_loss import with_token_loss

HEAD = "lm_head.decoder_weight"


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if OPTForCausalLM._tied_weights_keys:
        return
    OPTForCausalLM._tied_weights_keys = [HEAD]  # pyright: ignore[reportAttributeAccessIssue]
    OPTForCausalLM._keys_to_ignore_on_save = [HEAD]  # pyright: ignore[reportAttributeAccessIssue]
    OPTForCausalLM._keys_to_ignore_on_load_missing = [HEAD]  # pyright: ignore[reportAttributeAccessIssue]
    OPTForCausalLM.__init__ = _tied(OPTForCausalLM.__init__)
    OPTForCausalLM.forward = with_token_loss(OPTForCausalLM.forward)
    OPTLMHead.forward = _logits


def _tied(stock_init):
    @functools.wraps(stock_init)
    def init(self, config):
        stock_init(self, config)
        self.lm_head.decoder_weight = self.opt.embeddings.word_embeddings.weight

    return init


def _logits(self, hidden_states):
    if isinstance(hidden_states, ModelOutput):
        hidden_states = hidden_states["last_hidden_state"]
    return parallel_matmul(hidden_states, self.decoder_weight, parallel_output=self.config.tensor_parallel_output)
