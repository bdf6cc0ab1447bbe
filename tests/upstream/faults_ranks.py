"""What a process sees of the faults in launch/upstream, for test_faults.py: with all corrections, or with none."""

import hashlib
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import paddle
import paddle.distributed as dist
import paddlenlp.transformers as transformers
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import (
    DygraphShardingOptimizer,
)
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.sharding import group_sharded_parallel
from paddlenlp.generation import LogitsProcessor, LogitsProcessorList
from paddlenlp.generation.utils import GenerationMixin
from paddlenlp.transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.mistral.modeling import MistralRotaryEmbedding
from paddlenlp.transformers.mixtral.modeling import MixtralRotaryEmbedding
from paddlenlp.transformers.opt.modeling import _expand_mask
from paddlenlp.transformers.qwen2.modeling import Qwen2RotaryEmbedding
from paddlenlp.transformers.qwen2_moe.modeling import Qwen2MoeRotaryEmbedding
from paddlenlp.transformers.tokenizer_utils import PretrainedTokenizer

from data_tools.dialogues.chat_template import ChatTemplate, trained_with
from launch.evaluation.likelihood import shares_prefixes
from launch.families.named_configs import load_config
from launch.families.parameters import head_size
from launch.families.registry import FAMILIES
from launch.generation.generate import Decoding, generate
from launch.generation.text import decode
from launch.models.scaled_rotary import ScaledRotaryEmbedding
from launch.rehearsal.collectives import install, set_stage3_segment_size
from launch.training.model import family_config, load_tokenizer, open_tokenizer, save_random_model
from launch.upstream import CORRECTIONS, correct
from launch.upstream.rotary_tables_of_every_layer import SharedTables
from tests.families.family_ranks import build, start_fleet, tiny
from tests.families.published import YARN_WITH_ALL
from tests.families.reference import Weights, experts
from tests.generation.generate_ranks import NEVER, NEW_TOKENS, likely, prompts
from tests.plan.memory_ranks import allocated
from tests.training.packing_ranks import packed

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SERVING = "logits_processor_list"  # the correction that servers alone need
LLAMAS_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}


def observe(corrected: bool, directory: str) -> dict:
    """Return {name: what the function sees, or its exception}. The corrections are made twice, as they may be."""
    made_before = {name: make() for name, make in ROTARY.items()}
    for _ in range(2 * corrected):
        correct([*CORRECTIONS, *(name for family in FAMILIES.values() for name in family.corrections), SERVING])
    found = {"made before": {name: _tables(layer, 1030) for name, layer in made_before.items()}}
    for name, see in (SEEN | SEEN_IF_CORRECTED if corrected else SEEN).items():
        try:
            found[name] = see(Path(directory))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    if not corrected:
        found["glm of a recipe"] = _glm_of_a_recipe(directory)  # which makes its corrections
    return found


def _chat_templates(directory: Path) -> dict:
    """{folder: where its tokenizer says that it is from, the template that it would save; or how loading it fails}"""
    found = {}
    for name in ("loop control", "list"):
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(directory / name))
            found[name] = [str(tokenizer.directory), tokenizer.init_kwargs["chat_template"]]
        except Exception as error:
            found[name] = repr(error)
    return found


def _chat_template_files(directory: Path) -> dict[str, str]:
    """Where a tokenizer is saved, and where one that says with which template the model was trained."""
    found = {}
    for template in ("", "T"):
        tokenizer = open_tokenizer("tokenizer_name_or_path", str(directory / "files"))
        if template:
            tokenizer.init_kwargs = trained_with(ChatTemplate(template), tokenizer.init_kwargs)
        found[template] = tempfile.mkdtemp(dir=directory)
        tokenizer.save_pretrained(found[template])
    return found


def _glm_tokenizer(directory: Path) -> str:
    return type(AutoTokenizer.from_pretrained(str(directory / "glm"))).__name__


def _glm_of_a_recipe(directory: str) -> str:
    flags = {"model_name_or_path": "glm-rehearsal", "tokenizer_name_or_path": f"{directory}/glm"}
    return type(load_tokenizer(SimpleNamespace(**flags, continue_training=0))).__name__


class OwnChoice(LogitsProcessor):
    pass


def _logits_processors(directory: Path) -> list[str]:
    """The processors that generate() uses: its own for a minimum length, and the one given to it."""
    given = LogitsProcessorList([OwnChoice()])
    found = GenerationMixin.get_logits_processor(None, min_length=2, eos_token_id=1, logits_processors=given)
    return [type(one).__name__ for one in found._processors.values()]


MIXTRAL = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
}


def _mixtral(**changes):
    paddle.seed(3)
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**MIXTRAL | changes))


def _mixtral_experts(directory: Path) -> dict:
    """Of a block whose router avoids its first expert: the largest difference to all experts on all tokens, and the
    gradients of the weights of each expert; the shape of one token's result."""
    block = _mixtral().mixtral.layers[0].block_sparse_moe
    x = paddle.randn([2, 5, 16])
    x[..., 0] = 1.0  # for the router to see
    with paddle.no_grad():
        block.gate.weight[0, 0] = -50.0
    out, logits = block(x)
    (out**2).sum().backward()
    tensors = {f"{name}.weight": layer.weight.numpy().T for name, layer in _linear_layers(block)}
    expected = experts(Weights(tensors), x.numpy().astype("float64"), 2)
    sums = [[float(layer.weight.grad.abs().sum()) for _, layer in _linear_layers(one)] for one in block.experts]
    return {
        "difference": float(np.abs(out.numpy() - expected).max()),
        "logits": logits.shape,
        "gradients": sums,
        "one token": block(paddle.randn([1, 1, 16]))[0].shape,  # as in generation with a cache
    }


def _linear_layers(block) -> list:
    return [(name, layer) for name, layer in block.named_sublayers() if hasattr(layer, "weight")]


def _losses(make) -> dict:
    """Losses of the same batch: of a model without the auxiliary loss, of one with it in training and in evaluation;
    and the auxiliary loss by its formula."""
    plain, balanced = make(), make(output_router_logits=True, router_aux_loss_coef=0.5)
    ids = paddle.randint(0, 32, [2, 40])
    found = {"plain": float(plain(ids, labels=ids)[0]), "balanced": float(balanced(ids, labels=ids)[0])}
    logits = balanced(ids, output_router_logits=True, return_dict=True).router_logits
    balanced.eval()
    found |= {"evaluated": float(balanced(ids, labels=ids)[0]), "first": balanced(ids)[0].shape}
    shares = np.concatenate([paddle.nn.functional.softmax(one).numpy() for one in logits]).astype("float64")
    chosen = np.zeros_like(shares)
    np.put_along_axis(chosen, np.argsort(-shares)[:, :2], 1.0, axis=1)
    return found | {"auxiliary": float(shares.shape[1] * (chosen.mean(0) * shares.mean(0)).sum())}


def _mixtral_losses(directory: Path) -> dict:
    return _losses(_mixtral)


def _qwen2_moe(**changes):
    paddle.seed(3)
    config = transformers.Qwen2MoeConfig(**load_config("qwen2-moe-rehearsal") | changes)
    return transformers.Qwen2MoeForCausalLM(config)


def _qwen2_moe_chosen(directory: Path) -> list[bool]:
    """Of each expert of the first layer of a new model, whether its weights have a gradient."""
    made, ids = _qwen2_moe(), paddle.randint(0, 1000, [2, 40])
    made(ids, labels=ids)[0].backward()
    layers = made.qwen2_moe.layers[0].mlp.experts
    return [bool(layer.down_proj.weight.grad.abs().sum() > 0) for layer in layers]


def _qwen2_moe_losses(directory: Path) -> dict:
    return _losses(_qwen2_moe)


def _opt_mask(directory: Path) -> dict[str, float]:
    """{dtype: what is added to the score of a token that is padding}"""
    found = {}
    for dtype in ("float32", "bfloat16"):
        paddle.set_default_dtype(dtype)
        try:
            mask = _expand_mask(paddle.to_tensor([[True, False]]), tgt_length=1)
        finally:
            paddle.set_default_dtype("float32")
        found[dtype] = float(mask.astype("float32").min())
    return found


def _pipeline_gradient_shapes(directory: Path) -> list[list[int]]:
    """Activations of 5, 3 and 4 tokens leave a first stage, and in between one of 9 for evaluation; the shapes in which
    it then expects gradients, in the order of 1F1B with two micro batches on their way."""
    shapes = []

    def message(*, recv_next: bool, send_recv_meta, **_) -> tuple:
        if recv_next:
            shapes.append(list(send_recv_meta.send_shape_message))
        return None, None, None

    p2p_communication._p2p_helper = message
    helper = p2p_communication.P2pHelper(use_cache=False)
    helper._send_meta = lambda tensor, *_, **__: helper._send_recv_meta.set_send_message(tensor)

    def send(tokens: int) -> None:
        helper.send_forward(paddle.ones([1, tokens, 2]), False)

    send(5)
    send(3)
    helper.recv_backward(False)
    send(4)
    helper.recv_backward(False)
    with paddle.no_grad():
        send(9)
    helper.recv_backward(False)
    return shapes


def _qwen3(directory: Path) -> list[str]:
    """The classes that the Auto classes find by config.json, of a model that the corrected process saves."""
    folder = str(directory / "qwen3")
    if not os.path.exists(folder):
        save_random_model("qwen3-rehearsal", folder)
    models = [kind.from_pretrained(folder) for kind in (AutoModel, AutoModelForCausalLM)]
    return [type(one).__name__ for one in (AutoConfig.from_pretrained(folder), *models)]


def _rotary_bytes(directory: Path) -> int:
    """What a Qwen2 of 3 layers takes beside its parameters, after a forward pass of 40 tokens."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    sizes |= {"vocab_size": 64, "num_hidden_layers": 3, "max_position_embeddings": 131072}
    before = allocated()
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
    with paddle.no_grad():
        model(paddle.ones([1, 40], "int64"))
    return allocated() - before - sum(int(parameter.size) * 4 for parameter in model.parameters())


SIZE, POSITIONS, LENGTHS = 16, 2048, (7, 1030, 5, 2048)
ROTARY = {
    "llama": lambda: llama.LlamaRotaryEmbedding(SIZE, POSITIONS),
    "llama3": lambda: llama.Llama3RotaryEmbedding(SIZE, POSITIONS, original_max_position_embeddings=64),
    "qwen2": lambda: Qwen2RotaryEmbedding(SIZE, POSITIONS),
    "mistral": lambda: MistralRotaryEmbedding(SIZE, POSITIONS),
    "qwen2_moe": lambda: Qwen2MoeRotaryEmbedding(SIZE, POSITIONS),
    "mixtral": lambda: MixtralRotaryEmbedding(SIZE, POSITIONS),
}


def _rotary_tables(directory: Path) -> dict[str, dict[str, list]]:
    """{kind of layer: {how it is made and called: digests of its tables}}: in the dtype of a model for each length; one
    beside one that is cast once it is made, as paddle.amp.decorate does under O2, and back. Paddle casts inv_freq, too:
    a tensor that a layer has is one of its buffers."""
    found = {}
    for name, make in ROTARY.items():
        kinds = found[name] = {}
        for dtype in ("float32", "bfloat16"):
            paddle.set_default_dtype(dtype)
            layer = make()
            with paddle.amp.auto_cast(dtype != "float32", dtype="bfloat16", level="O2"):
                kinds[dtype] = [_tables(layer, length, dtype) for length in LENGTHS]
            paddle.set_default_dtype("float32")
        first, second = make(), make()
        kinds["cast"] = [_tables(first, 1030), _tables(second.to(dtype="float16"), 1030, "float16")]
        kinds["cast back"] = [_tables(first, 1030), _tables(second.to(dtype="float32"), 1030)]
    return found


def _tables(layer, length: int, dtype: str = "float32") -> str:
    tables = [table for table in layer(paddle.zeros([1, length, 2, SIZE], dtype), length)]
    facts = [(str(table.dtype), table.shape, table.astype("float32").numpy().tobytes()) for table in tables]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _rotary_rows(directory: Path) -> dict:
    """{kind of layer: whether two layers share their tables, their rows for each length}"""
    found = {}
    for name, make in ROTARY.items():
        first, second = make(), make()
        rows = []
        for length in LENGTHS:
            _tables(first, length), _tables(second, length)
            rows.append(first.tables.cos_cached.shape[0 if name == "mistral" else 1])
        found[name] = [first.tables is second.tables, rows]
    return found


def _rotary_beyond_the_end(directory: Path) -> dict:
    """{kind of layer: the shape of the cosines for one position more than it has, how often two layers compute them}"""
    found = {}
    for name in ("llama", "qwen2"):
        first, second = ROTARY[name](), ROTARY[name]()
        with patch.object(SharedTables, "grow", autospec=True, side_effect=SharedTables.grow) as grow:
            shapes = [layer(paddle.zeros([1, 1, 2, SIZE]), POSITIONS + 1)[0].shape for layer in (first, second) * 2]
        found[name] = [shapes[-1], grow.call_count]
    return found


def _scaled_positions(directory: Path) -> dict:
    """{family: cosines and sines of a model's first layer for 30 positions, also once it is cast; whether both layers
    share them, the rows that are kept, the buffers}"""
    found = {}
    for name in ("llama", "qwen2", "qwen3"):
        family = FAMILIES[name]
        if not hasattr(transformers, family.config_class):
            continue  # upstream has no Qwen3
        values = load_config(family.rehearsal_config) | {"num_hidden_layers": 2, "max_position_embeddings": 64}
        config = getattr(transformers, family.config_class)(**values, rope_scaling=YARN_WITH_ALL)
        model = getattr(transformers, family.model_class)._from_config(config, dtype="float32")
        first, second = (layer.self_attn.rotary_emb for layer in model.base_model.layers)
        seen = found[name] = {"size": head_size(values), "theta": config.rope_theta}
        seen["tables"], others = (_cosines_and_sines(layer, 30) for layer in (first, second))
        assert seen["tables"] == others
        if hasattr(first, "tables"):
            seen |= {"shared": first.tables is second.tables, "rows": first.tables.rows}
            seen["buffers"] = [key for key in model.state_dict() if "rotary" in key]
        model.to(dtype="bfloat16")
        seen["after a cast"] = _cosines_and_sines(first, 30)
    return found


def _dynamic_positions(directory: Path) -> list:
    """[length, tables] of one layer for lengths beyond its own, and back."""
    layer = ScaledRotaryEmbedding(16, 10000.0, LLAMAS_DYNAMIC, 16)
    return [(length, _cosines_and_sines(layer, length)) for length in (6, 8, 20, 21, 6)]


def _scaled_packed(directory: Path) -> dict:
    return packed("qwen2", rope_scaling=YARN)


def _scaled_prefixes(directory: Path) -> list[bool]:
    """Whether an evaluation puts questions of such LLaMAs into one row."""
    configs = [tiny("llama", rope_scaling=block).to_dict() for block in (YARN, LLAMAS_DYNAMIC)]
    return [shares_prefixes(FAMILIES["llama"], config) for config in configs]


def _scaled_answers(directory: Path) -> dict:
    """{family: greedy answers to prompts in one batch, what forward passes without a cache make most likely there}"""
    start_fleet()
    found = {}
    for name in ("llama", "qwen2", "qwen3"):
        model = build(name, tiny(name, rope_scaling=YARN))
        model.eval()
        answers = generate(model, FAMILIES[name], prompts(name), Decoding(NEW_TOKENS), NEVER)
        found[name] = [answers, [likely(model, *both) for both in zip(prompts(name), answers, strict=True)]]
    return found


def _qwen3_shapes(directory: Path) -> dict[str, list[int]]:
    """Of a configuration without head_dim."""
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
    config = family_config({"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2} | sizes)
    attention = transformers.Qwen3ForCausalLM(config).qwen2.layers[0].self_attn
    return {name: getattr(attention, name).weight.shape for name in ("q_proj", "k_proj", "o_proj", "q_norm")}


def _cosines_and_sines(layer, length: int) -> list:
    both = layer(paddle.zeros([1, length, 2, 4]), seq_len=length)
    return [table[0, :, 0].astype("float32").tolist() for table in both]


def _special_ids(directory: Path) -> dict:
    """Lookups of the special tokens while some ids are decoded, the text, and the ids that are special once another
    token is."""
    ids = [1, 300, 301, 2, 302, 260, 2]
    tokenizer = AutoTokenizer.from_pretrained(str(directory / "plain"))
    stock, calls = PretrainedTokenizer.convert_tokens_to_ids, []
    PretrainedTokenizer.convert_tokens_to_ids = lambda self, tokens: calls.append(tokens) or stock(self, tokens)
    found = {"text": decode(tokenizer, ids), "again": decode(tokenizer, ids), "calls": len(calls)}
    PretrainedTokenizer.convert_tokens_to_ids = stock
    before = tokenizer.all_special_ids
    before.append(-1)  # the caller's own list
    found["before"] = tokenizer.all_special_ids
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra>"]})
    found["after"] = tokenizer.all_special_ids
    tokenizer.pad_token = "<other>"
    found["changed"] = len(tokenizer.all_special_ids)
    return found


SEEN = {
    "chat_templates_compiled": _chat_templates,
    "chat template files": _chat_template_files,
    "glm_tokenizers_unknown": _glm_tokenizer,
    "logits_processor_list": _logits_processors,
    "mixtral_experts": _mixtral_experts,
    "mixtral losses": _mixtral_losses,
    "qwen2_moe_experts": _qwen2_moe_chosen,
    "qwen2_moe losses": _qwen2_moe_losses,
    "opt_bfloat16_mask": _opt_mask,
    "pipeline_gradient_shapes": _pipeline_gradient_shapes,
    "newer_models_unknown": _qwen3,
    "rotary_tables_of_every_layer": _rotary_bytes,
    "rotary tables": _rotary_tables,
    "scaled_positions_ignored": _scaled_positions,
    "special_ids_of_every_token": _special_ids,
}
SEEN_IF_CORRECTED = {
    "rotary rows": _rotary_rows,
    "rotary beyond the end": _rotary_beyond_the_end,
    "dynamic positions": _dynamic_positions,
    "scaled packed": _scaled_packed,
    "scaled prefixes": _scaled_prefixes,
    "scaled answers": _scaled_answers,
    "qwen3 shapes": _qwen3_shapes,
}


def observe_sharding(corrected: bool) -> dict:
    """Return what each of two ranks sees of stages 1 and 3 of sharding."""
    for _ in range(2 * corrected):
        correct()
    start_fleet(sharding_degree=dist.get_world_size())
    return {"stage1_frozen_parameters": _stage1_gradients(), "stage3_weight_decay": _stage3_step()}


def _stage1_gradients() -> list[float | None]:
    """Of a frozen and a trained weight, after the sum over the ranks; rank r's input is r + 1."""
    layers = [paddle.nn.Linear(1, 1, bias_attr=False) for _ in range(2)]
    weights = [layer.weight for layer in layers]
    weights[0].stop_gradient = True
    weights[0].set_value(paddle.ones([1, 1]))
    inner = paddle.optimizer.AdamW(parameters=weights)
    groups = fleet.get_hybrid_communicate_group()
    optimizer = DygraphShardingOptimizer(inner, groups)
    layers[1](layers[0](paddle.full([1, 1], dist.get_rank() + 1.0))).sum().backward()
    optimizer.reduce_gradients(weights, groups)
    return [None if one.grad is None else float(one.grad) for one in weights]


def _stage3_step() -> dict:
    """AdamW, learning rate 0.5, weight decay 0.2, gradients of 0, on a sliced weight and a whole bias of ones: what
    both are afterwards. The optimizer is told that the weight decays."""
    install()
    set_stage3_segment_size(10)
    layer = paddle.nn.Linear(4, 4)
    for parameter in layer.parameters():
        parameter.set_value(paddle.ones_like(parameter))
    optimizer = paddle.optimizer.AdamW(
        learning_rate=0.5,
        weight_decay=0.2,
        parameters=layer.parameters(),
        apply_decay_param_fun=lambda name: name == layer.weight.name,
    )
    model, optimizer, _ = group_sharded_parallel(layer, optimizer, "p_g_os", group=dist.get_group())
    sliced = [hasattr(parameter, "fw_storage") for parameter in layer.parameters()]
    (model(paddle.ones([1, 4])) * 0).sum().backward()
    optimizer.step()
    model.get_all_parameters(convert2cpu=True)
    return {"sliced": sliced, "weight": layer.weight.numpy().tolist(), "bias": layer.bias.numpy().tolist()}
