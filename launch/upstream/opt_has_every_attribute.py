"""OPT has an attribute of every name, and accumulation fails.

paddlenlp/transformers/opt/modeling.py, OPTForCausalLM.__getattr__: what neither the model nor its base has is looked up
in the configuration, which answers None for what it does not know. So the Trainer finds a no_sync, and calls None.
Corrected: the method is removed; PretrainedModel's own says what is missing.
"""

from paddlenlp.transformers.opt.modeling import OPTForCausalLM


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if "__getattr__" in vars(OPTForCausalLM):
        del OPTForCausalLM.__getattr__
