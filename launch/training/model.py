"""From flags to a model: configuration by name or directory, weights random or loaded, tokenizer."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import paddle
import paddlenlp.transformers as transformers
from paddlenlp.trainer import set_seed
from paddlenlp.trainer.trainer_utils import ShardingOption
from paddlenlp.transformers import AutoTokenizer

from data_tools.formats.errors import DataError
from data_tools.text.encoders import require_quick
from launch.adapters.quantization import Format
from launch.adapters.quantized_layers import quantize_filled, random_model
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.model_identity import vocabulary_so_far
from launch.checkpoint.model_loader import Fill, load_model
from launch.checkpoint.ranks import broadcast, first_on_rank_zero, rank
from launch.cpu import kernels
from launch.cpu.bfloat16 import BFloat16Products
from launch.devices.cpu_operators import compiled_operators
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import POSITIONS, gives_scores
from launch.families.registry import as_reward_model, family_of_config
from launch.families.tokenizer_files import fresh_vocabulary, read_tokenizer
from launch.models.reward_model import reward_model_class
from launch.offload.activations import offload_activations
from launch.offload.embedding import NAME as EMBEDDING
from launch.offload.embedding import to_host
from launch.offload.group_sharded import keep_filled
from launch.switches import FLASH_ATTENTION, FLASH_ATTENTION_3, FUSED_RMS_NORM, FUSED_ROPE
from launch.switches.precision import attention_dtype, instead_of_bf16
from launch.upstream import correct, llama_flash_masks

COPIED_FLAGS = [
    "tensor_parallel_degree",
    "tensor_parallel_rank",
    "pipeline_parallel_degree",
    "sequence_parallel",
    "recompute",
]


def build_config(
    model_args, sequence_length: int, training_args, decisions, continuation: Continuation, scores: bool = False
):
    """Return the paddlenlp configuration of the model: its file, then the flags and decisions that change how it runs.

    scores: whether it becomes a reward model.
    """
    values = load_config(model_args.model_name_or_path)
    values = as_reward_model(values) if scores else values
    if (size := _fresh_vocabulary(values, model_args, training_args, continuation)) is not None:
        values |= {"vocab_size": size}
    if model_args.continue_training:
        _require_weights(model_args.model_name_or_path)
    config = family_config(values)
    for name in COPIED_FLAGS:
        setattr(config, name, getattr(training_args, name))
    config.recompute_granularity = model_args.recompute_granularity
    config.seq_length = sequence_length
    for name in POSITIONS:  # the family's name for them; Bloom counts none
        if hasattr(config, name):
            setattr(config, name, max(getattr(config, name), sequence_length))
    config.use_cache = False
    config.use_flash_attention = decisions.uses(FLASH_ATTENTION)
    llama_flash_masks.use_version_3(decisions.uses(FLASH_ATTENTION_3))
    config.use_fused_rms_norm = decisions.uses(FUSED_RMS_NORM)
    config.use_fused_rope = decisions.uses(FUSED_ROPE)
    return config


def _fresh_vocabulary(values: dict, model_args, training_args, continuation: Continuation) -> int | None:
    """Return the vocabulary as rank 0 finds it: the tokenizer's files need not be visible to the others yet."""
    flags = SimpleNamespace(
        continue_training=bool(model_args.continue_training),
        tokenizer_name_or_path=model_args.tokenizer_name_or_path,
        tensor_parallel_degree=training_args.tensor_parallel_degree,
    )
    so_far = vocabulary_so_far(continuation.manifest, values)
    return broadcast(fresh_vocabulary(values, flags, lambda: so_far) if rank() == 0 else None)


def vocabulary_lines(config, model_args) -> list[str]:
    """Return lines for the user where a fresh model has another vocabulary than its configuration."""
    published = load_config(model_args.model_name_or_path)["vocab_size"]
    if config.vocab_size == published:
        return []
    tokenizer = model_args.tokenizer_name_or_path
    return [f"vocabulary: {config.vocab_size:,} ids, those of {tokenizer}, not the configuration's {published:,}"]


def family_config(values: dict):
    """Return the paddlenlp configuration of a config.json's values, once the family's faults are corrected."""
    family = family_of_config(values)
    correct(family.corrections)
    # A model that answers keeps keys and values, which paddlenlp's fused path refuses: a run alone switches it on.
    return getattr(transformers, family.config_class)(**values | {"use_fused_rope": False})


def _require_weights(name: str) -> None:
    """Raise UserError for a checked-in configuration's own name: weights have an owner, or a directory."""
    if not Path(name).is_dir() and "/" not in name:
        raise UserError(
            f"--model_name_or_path: {name!r} is a configuration without weights. Give a model directory or a name with "
            "its owner (facebook/llama-7b), or start from random weights: --continue_training 0."
        )


def build_model(config, model_args, training_args, base: Format | None = None):
    """Return the model on its device, in the dtype of training, with random or loaded weights.

    `directory` of a model with loaded weights is where they were found.

    Args:
        config: Of the model.
        model_args: The flags.
        training_args: The flags.
        base: The format of the linear layers, which are quantized while they are read or drawn; None: they stay as
            they are.
    """
    family = family_of_config(config.to_dict())
    model_class = class_of(config, training_args.pipeline_parallel_degree > 1)
    dtype = compute_dtype(training_args)
    if not model_args.continue_training:
        set_seed(training_args.seed)  # the Trainer does so, too, but has the model already
        if base:
            return random_model(model_class, config, dtype, base)
        return model_class._from_config(config, dtype=dtype)
    directory = weights_directory(model_args.model_name_or_path, model_class, config)
    model = load_model(model_class, config, dtype, directory, _when_filled(family, base, training_args))
    model.directory = directory
    return model


def class_of(config, pipeline: bool = False):
    """Return the class of paddlenlp, or of launch/models, for a configuration."""
    values = config.to_dict()
    family = family_of_config(values)
    if gives_scores(values):
        return reward_model_class(family.reward_class, family.model_class.replace("ForCausalLM", "Model"))
    name = family.pipeline_class if pipeline else family.model_class
    assert name is not None, "preflight refuses a pipeline of this family"
    return getattr(transformers, name)


def _when_filled(family, base: Format | None, training_args):
    """Return the function that is called with each parameter as soon as it is read; None without one."""
    quantized = quantize_filled(family, base) if base else None
    if training_args.offload_embedding:
        return partial(_embedding_to_host, then=quantized)
    if quantized:
        return quantized
    sliced = training_args.host_offload and ShardingOption.FULL_SHARD in training_args.sharding
    return keep_filled if sliced and training_args.do_train else None


def _embedding_to_host(fill: Fill, then: Callable[[Fill], None] | None) -> None:
    if fill.name.endswith(f".{EMBEDDING}"):
        to_host(fill.parameter)
    elif then:
        then(fill)


def weights_directory(name: str, model_class, config) -> Path:
    """Return the directory of a name: itself, or PaddleNLP's folder of downloads, which rank 0 fills first.

    Raises:
        UserError: If the name cannot be downloaded.
    """
    if Path(name).is_dir():
        return Path(name)
    file, shards, _, _ = first_on_rank_zero(
        lambda: _load("model_name_or_path", name, lambda: model_class._resolve_model_file_path(name, config=config))
    )
    return Path(shards[0] if shards else file).parent


def speed_up(model, training_args, bfloat16: bool) -> list[str]:
    """Put the faster operators of launch/cpu into the model on a CPU; return lines about them. bfloat16: --bf16 1."""
    if training_args.device != "cpu" or training_args.cpu_fast == "off":
        return []
    return [kernels.apply(model, compiled_operators(), bfloat16)]


def products_on_cpu(training_args) -> tuple[BFloat16Products | None, str]:
    """Return the products that a run on a CPU computes in bfloat16, or None, and why auto cannot have them, or "".

    Raises:
        UserError: If they cannot be had, and not auto asks for them.
    """
    requested = training_args.bfloat16_products
    compiled = compiled_operators() if requested else None
    if compiled is None:
        return None, ""
    if not (obstacle := compiled.products_obstacle()):
        return BFloat16Products(compiled), ""
    if requested != "auto":
        raise UserError(f"--bf16: found {requested}, but {obstacle}. Use {instead_of_bf16(None)}.")
    training_args.bfloat16_products = ""
    return None, obstacle


def widen(model, model_args, training_args) -> list[str]:
    """Make norms and output layer compute in float32 where the flags request it; returns lines for the user."""
    if not model_args.fp32_norms_and_head:
        return []
    return [norms_and_head_in_float32(model, compute_dtype(training_args))]


def keep_activations(model, training_args) -> list[str]:
    """Keep the inputs of recomputed layers in host memory where the flags request it; returns lines for the user."""
    if training_args.offload != "activations":
        return []
    offload_activations(model)
    return ["offload: the inputs of recomputed layers are in host memory until their backward pass"]


def compute_dtype(training_args) -> str:
    """Return the dtype of stored weights: half precision under O2, else float32."""
    if training_args.fp16_opt_level == "O2":
        if training_args.bf16:
            return "bfloat16"
        if training_args.fp16:
            return "float16"
    return "float32"


def matmul_dtype(training_args) -> str:
    """Return the dtype of matrix products: on a card half precision under O1, too."""
    if training_args.device == "cpu":
        return compute_dtype(training_args)
    return attention_dtype(training_args.bf16, training_args.fp16, training_args.fp16_opt_level)


def measured_product(training_args) -> Callable | None:
    """Return the product of matrices whose speed a run on a CPU is measured by; None: Paddle's."""
    compiled = compiled_operators() if training_args.bfloat16_products else None
    return compiled and compiled.product


def load_tokenizer(model_args):
    """Return the tokenizer that is saved beside the weights; None where no flag names one and the model comes without.

    Pretraining reads token ids: the tokenizer is not needed to train, only to use the model afterwards. One in the
    model's directory belongs to its vocabulary, whether its weights are taken or new ones are drawn.
    """
    name = model_args.tokenizer_name_or_path
    if name is None:
        name = model_args.model_name_or_path
        has_one = (Path(name) / "tokenizer_config.json").exists()
        if not has_one and (Path(name).is_dir() or not model_args.continue_training):
            return None
    flag = "tokenizer_name_or_path" if model_args.tokenizer_name_or_path else "model_name_or_path"
    correct(family_of_config(load_config(model_args.model_name_or_path)).corrections)
    return open_tokenizer(flag, name)


def open_tokenizer(flag: str, name: str):
    """Return the tokenizer of a directory, or of a name that PaddleNLP downloads.

    Raises:
        UserError: If its files are damaged, or of a class that PaddleNLP does not have.
    """
    directory = Path(name)
    if directory.is_dir():
        read_tokenizer(directory)
    try:
        tokenizer = _load(flag, name, lambda: AutoTokenizer.from_pretrained(name))
        if backend := getattr(tokenizer, "backend_tokenizer", None):
            require_quick(backend, name)
        return tokenizer
    except (UserError, DataError, MemoryError):
        raise
    except Exception as error:  # for damaged files every library raises its own
        reason = (str(error) or repr(error)).splitlines()[0][:200]
        raise UserError(
            f"--{flag}: the tokenizer of {name!r} cannot be loaded: {reason}. Copy its files again; tokenizer_class in "
            "tokenizer_config.json must be one of PaddleNLP's: `make import` writes it."
        ) from error


def _load(flag: str, name: str, load):
    """Return the result of `load` for a name, from a directory or PaddleNLP's hub.

    Raises UserError when neither has it.
    """
    try:
        return load()
    except OSError as error:  # missing files, and every failure of a download
        reason = str(error).splitlines()[0][:200]
        raise UserError(
            f"--{flag}: {name!r} cannot be loaded: {reason}. PaddleNLP downloads names from its own hub. Give a "
            "directory that has it: `make download MODEL=OWNER/NAME` makes one."
        ) from error


def save_random_model(model_name_or_path: str, directory: Path) -> None:
    """Write a model with random weights as a directory that --model_name_or_path takes (float32, safetensors)."""
    config = family_config(load_config(model_name_or_path))
    paddle.seed(42)
    model_class = getattr(transformers, family_of_config(config.to_dict()).model_class)
    model = model_class._from_config(config, dtype="float32")
    model.save_pretrained(str(directory), safe_serialization=True)


# ---- norms and the output layer in float32, within a model whose weights are kept in half precision
#
# They are sensitive because they sum over many values: squares in a norm, and in the output layer products whose
# exponentials enter the loss. Weights stay in half precision and are converted while a layer computes.


NORMS = ("LayerNorm", "RMSNorm")
HEADS = ("LMHead", "ChatGLMHead")


class InFloat32(paddle.nn.Layer):
    """Mixed into the class of a layer: it computes in float32, and returns `output_dtype`, None for float32."""

    output_dtype: paddle.dtype | None = None

    def forward(self, hidden_states, *args, **kwargs):
        """Compute the layer in float32."""
        own = {name: parameter for name, parameter in self._parameters.items() if parameter is not None}
        wide = {name: parameter.astype("float32") for name, parameter in own.items()}
        for name, parameter in own.items():  # sharded by tensor parallelism as before
            wide[name].is_distributed = getattr(parameter, "is_distributed", False)
        vars(self).update(wide)  # found before the parameters of the same names
        try:
            with paddle.amp.auto_cast(False):
                outputs = super().forward(hidden_states.astype("float32"), *args, **kwargs)
                return outputs if self.output_dtype is None else outputs.astype(self.output_dtype)
        finally:
            for name in wide:
                del vars(self)[name]


def norms_and_head_in_float32(model, dtype: str) -> str:
    """Make norms and output layer of a model compute in float32; a line about it. dtype: of the model's weights."""
    if dtype == "float32":
        return "norms and output layer: float32, as all of the model"
    norms = [layer for layer in model.sublayers() if type(layer).__name__.endswith(NORMS)]
    heads = [layer for layer in model.sublayers() if type(layer).__name__.endswith(HEADS)]
    for layer in [*norms, *heads]:
        layer.__class__ = type(f"Float32{type(layer).__name__}", (InFloat32, type(layer)), {})
    for layer in norms:
        layer.output_dtype = getattr(paddle, dtype)
    return f"norms and output layer: float32 ({len(norms)} norms, {len(heads)} output layer), all else {dtype}"
