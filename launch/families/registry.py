"""The table of model families: one row per family, as data. Classes are named, not imported.

family = family_of_config(load_config("facebook/llama-7b"))
family.lacking.get("sequence_parallel")  # why not, and what works instead; None where it works
"""

from dataclasses import dataclass, field

from launch.errors import UserError

FEATURES = {  # name: what a person calls it
    "pretrain": "pretraining",
    "tensor_parallel": "tensor parallel",
    "pipeline_parallel": "pipeline parallel",
    "sequence_parallel": "sequence parallel",
    "flash_attention": "flash attention",
    "recompute": "recompute",
    "packing": "packing",
    "lora": "LoRA",
    "prefix": "prefix tuning",
}

LLAMA_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
GLM_LINEAR = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
OPT_LINEAR = ("q_proj", "k_proj", "v_proj", "out_proj", "linear1", "linear2")

NO_PIPELINE = "paddlenlp has no pipeline class for it; tensor_parallel_degree works instead"
NO_SEQUENCE = "its layers of paddlenlp do not divide the sequence; tensor_parallel_degree without it works"
NO_FLASH = "paddlenlp's code of this family never calls it; leave --use_flash_attention at auto"
ALIBI = "its position bias (ALiBi) is added to every score, which the kernels do not do; exact attention works"
PREFIX_LM = "it reads the prompt in both directions and needs pairs of prompt and answer; fine-tune it instead"
NO_PACKING = "its positions restart in each sample, which masks for packed samples do not express; pad instead"


@dataclass(frozen=True)
class Family:
    """One model family of paddlenlp.

    name:             in this table. title: models that belong to it, for people
    model_type:       `model_type` in the config.json that paddlenlp reads. The classes are names in
                      `paddlenlp.transformers`; pipeline_class is None where there is none
    rehearsal_config: the tiny configuration that stands in for every model of the family on a CPU
    linear_layers:    last parts of the names of all linear layers within a transformer layer
    prefix_postprocess: function of `paddlenlp.peft.prefix` that shapes prefix keys and values; None: no prefix tuning
    chat_template:    file in launch/families/chat_templates, in paddlenlp's form, ends of turns included; for a
                      tokenizer that brings none of its own
    begins_chats:     whether what the tokenizer puts before a text stands before a chat, too; else the template says
    odd_vocabulary:   whether a tensor_parallel_degree may leave a remainder of the vocabulary: its embedding and head
                      then stay whole on every rank
    attention:        "causal": input_ids and labels are enough. "prefix": the prompt is seen in both directions, and
                      the model needs an attention mask and two rows of positions (launch/families/prefix_lm.py)
    answer_marks:     with "prefix", the tokens between prompt and answer, as the tokenizers of the published models
                      and paddlenlp's build_inputs_with_special_tokens put them: the first is the mask that the answer
                      stands for, the last begins the answer
    answer_end:       the token that ends an answer; None: the tokenizer's eos
    lacking:          feature -> why not, and what works instead; all other FEATURES are supported
    corrections:      files of launch/upstream that this family alone needs
    """

    name: str
    title: str
    model_type: str
    config_class: str
    model_class: str
    pipeline_class: str | None
    tokenizer_class: str
    rehearsal_config: str
    linear_layers: tuple[str, ...]
    prefix_postprocess: str | None
    chat_template: str
    begins_chats: bool = False
    odd_vocabulary: bool = False
    attention: str = "causal"
    answer_marks: tuple[str, ...] = ()
    answer_end: str | None = None
    lacking: dict[str, str] = field(default_factory=dict)
    corrections: tuple[str, ...] = ()

    @property
    def answer_symbols(self) -> tuple[str, ...]:
        """All tokens that this family's answers need."""
        return self.answer_marks + ((self.answer_end,) if self.answer_end else ())


FAMILIES = {
    family.name: family
    for family in [
        Family(
            name="llama",
            title="LLaMA 1, 2, 3; Baichuan-7B",
            model_type="llama",
            config_class="LlamaConfig",
            model_class="LlamaForCausalLM",
            pipeline_class="LlamaForCausalLMPipe",
            tokenizer_class="LlamaTokenizer",
            rehearsal_config="llama-rehearsal",
            linear_layers=LLAMA_LINEAR,
            prefix_postprocess="llama_postprocess_past_key_value",
            chat_template="llama",
            odd_vocabulary=True,
            corrections=("generation_mask", "llama_flash_masks"),
        ),
        Family(
            name="baichuan",
            title="Baichuan-13B",
            model_type="llama",
            config_class="LlamaConfig",
            model_class="LlamaForCausalLM",
            pipeline_class="LlamaForCausalLMPipe",
            tokenizer_class="LlamaTokenizer",
            rehearsal_config="baichuan-rehearsal",
            linear_layers=LLAMA_LINEAR,
            prefix_postprocess="llama_postprocess_past_key_value",
            chat_template="baichuan",
            odd_vocabulary=True,
            lacking={"flash_attention": ALIBI},
            corrections=("generation_mask", "llama_flash_masks"),
        ),
        Family(
            name="chatglm",
            title="ChatGLM-6B",
            model_type="chatglm",
            config_class="ChatGLMConfig",
            model_class="ChatGLMForCausalLM",
            pipeline_class=None,
            tokenizer_class="ChatGLMTokenizer",
            rehearsal_config="chatglm-rehearsal",
            linear_layers=GLM_LINEAR,
            prefix_postprocess="chatglm_postprocess_past_key_value",
            chat_template="chatglm",
            attention="prefix",
            answer_marks=("[gMASK]", "<sop>"),
            lacking={
                "pretrain": PREFIX_LM,
                "pipeline_parallel": NO_PIPELINE,
                "sequence_parallel": NO_SEQUENCE,
                "packing": NO_PACKING,
            },
            corrections=("chatglm_loss",),
        ),
        Family(
            name="chatglm_v2",
            title="ChatGLM2-6B",
            model_type="chatglm_v2",
            config_class="ChatGLMv2Config",
            model_class="ChatGLMv2ForCausalLM",
            pipeline_class="ChatGLMv2ForCausalLMPipe",
            tokenizer_class="ChatGLMv2Tokenizer",
            rehearsal_config="chatglm2-rehearsal",
            linear_layers=GLM_LINEAR,
            prefix_postprocess="chatglm_postprocess_past_key_value",
            chat_template="chatglm_v2",
            begins_chats=True,
            corrections=(
                "generation_mask",
                "chatglm_v2_flash_layout",
                "chatglm_v2_split",
                "chatglm_v2_sequence_length",
                "chatglm_v2_pipeline_names",
                "chatglm_v2_pipe_positions",
                "chatglm_v2_ignores_prefix",
            ),
        ),
        Family(
            name="bloom",
            title="Bloom",
            model_type="bloom",
            config_class="BloomConfig",
            model_class="BloomForCausalLM",
            pipeline_class=None,
            tokenizer_class="BloomTokenizer",
            rehearsal_config="bloom-rehearsal",
            linear_layers=GLM_LINEAR,
            prefix_postprocess="bloom_postprocess_past_key_value",
            chat_template="plain",
            lacking={
                "pipeline_parallel": NO_PIPELINE,
                "sequence_parallel": NO_SEQUENCE,
                "flash_attention": ALIBI,
            },
            corrections=("bloom_zero_weights",),
        ),
        Family(
            name="glm",
            title="GLM",
            model_type="glm",
            config_class="GLMConfig",
            model_class="GLMForConditionalGeneration",
            pipeline_class=None,
            tokenizer_class="GLMTokenizer",
            rehearsal_config="glm-rehearsal",
            linear_layers=GLM_LINEAR,
            prefix_postprocess=None,
            chat_template="plain",
            begins_chats=True,
            attention="prefix",
            answer_marks=("[gMASK]", "<|endoftext|>", "<|startofpiece|>"),
            answer_end="<|endofpiece|>",
            lacking={
                "pretrain": PREFIX_LM,
                "pipeline_parallel": NO_PIPELINE,
                "sequence_parallel": NO_SEQUENCE,
                "flash_attention": NO_FLASH,
                "packing": NO_PACKING,
                "prefix": "its cache holds hidden states, not the keys and values that a prefix is made of; LoRA works",
            },
            corrections=("glm_loss", "glm_split"),
        ),
        Family(
            name="opt",
            title="OPT",
            model_type="opt",
            config_class="OPTConfig",
            model_class="OPTForCausalLM",
            pipeline_class=None,
            tokenizer_class="GPTTokenizer",
            rehearsal_config="opt-rehearsal",
            linear_layers=OPT_LINEAR,
            prefix_postprocess=None,
            chat_template="plain",
            begins_chats=True,
            lacking={
                "pipeline_parallel": NO_PIPELINE,
                "sequence_parallel": NO_SEQUENCE,
                "flash_attention": NO_FLASH,
                "recompute": "its layers ignore the flag; a smaller micro batch with more accumulation works",
                "packing": "its positions are counted from the mask over the whole row; pad instead",
                "prefix": "its attention of paddlenlp takes no keys and values of a prefix; LoRA works",
            },
            corrections=("opt_untied_head", "opt_has_every_attribute", "opt_bfloat16_mask"),
        ),
        Family(
            name="qwen2",
            title="Qwen2",
            model_type="qwen2",
            config_class="Qwen2Config",
            model_class="Qwen2ForCausalLM",
            pipeline_class="Qwen2ForCausalLMPipe",
            tokenizer_class="Qwen2Tokenizer",
            rehearsal_config="qwen2-rehearsal",
            linear_layers=LLAMA_LINEAR,
            prefix_postprocess="qwen_postprocess_past_key_value",
            chat_template="qwen2",
            odd_vocabulary=True,
            corrections=("generation_mask", "llama_flash_masks"),
        ),
    ]
}


def family_of(model_type: str) -> Family:
    """The family of a config.json's `model_type`. Raises UserError for a family that is not in the table."""
    if model_type not in FAMILIES:
        raise UserError(
            f"model_type: found {model_type!r}, allowed: {', '.join(sorted(FAMILIES))}. "
            "Add a row to launch/families/registry.py for another family."
        )
    return FAMILIES[model_type]


def family_of_config(config: dict) -> Family:
    """The family of a configuration: a LLaMA with ALiBi is a Baichuan-13B. Raises UserError as family_of."""
    return FAMILIES["baichuan"] if config.get("alibi") else family_of(config["model_type"])
