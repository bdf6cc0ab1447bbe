"""Models under flash attention on a CPU and on pretended cards, for test_flash.py."""

import importlib
from contextlib import nullcontext, suppress
from inspect import signature
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import paddle
import paddlenlp.transformers as transformers
from paddlenlp.transformers.llama import modeling_pp

from launch.adapters.add import add_prefix
from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from launch.models.alibi_columns import ALIBI_COLUMNS, slopes_of, widened
from launch.training.batches import apart, ends
from launch.upstream import correct
from tests.devices.flash_mask import flashmask_attention
from tests.devices.pretended_card import pretended_card

LENGTH, PADDING, PREFIX, CACHED = 13, 4, 6, 9
FAULTY = ("llama", "qwen2", "baichuan")  # upstream's attention of these is looked at
CARDS = {"CPU": None, "A100": (8, 0), "V100": (7, 0)}  # compute capabilities


def observe(families: list[str], corrected: bool) -> dict[str, dict]:
    """Return {family: what the functions below see of it}, with its corrections, made twice, or none."""
    correct(["qwen2_moe_experts"])  # which fails before it comes to a mask
    found = {}
    for family in families:
        for _ in range(2 * corrected):
            correct(FAMILIES[family].corrections)
        found[family] = {"attention": _differences(family)} if corrected or family in FAULTY else {}
        if family in ("baichuan", "bloom"):
            found[family]["masks given"] = _masks_given(family)
        if family in ("llama", "qwen2", "qwen2_moe"):
            found[family]["masks made"] = _masks_made(family)
        if FAMILIES[family].row_ends and corrected:
            found[family]["row ends"] = _by_row_ends(family)
        if family == "baichuan" and corrected:
            found[family]["pipeline"] = _pipeline()
    return found


def _differences(family: str) -> dict[str, dict]:
    """{card: {case: [largest difference to exact attention, relative to the largest number, kernels taken, error]}}"""
    found = {card: {} for card in CARDS}
    models = {flash: _model(family, flash) for flash in (False, True)}
    for name, case in CASES.items():
        made = (lambda flash: _model(family, flash)) if name == "prefix" else models.get  # a prefix changes its model
        exact = case(made(False))
        for card, capability in CARDS.items():
            with pretended_card(capability, "float16") if capability else nullcontext([]) as taken:
                try:
                    difference, error = float(np.abs(case(made(True)) - exact).max()), ""
                except Exception as raised:
                    difference, error = None, str(raised)
            relative = difference and difference / float(np.abs(exact).max())
            found[card][name] = [relative, sorted(set(taken)), error]
    return found


def _by_row_ends(family: str) -> list[float]:
    """[largest difference of losses of packed rows by their ends to those by a mask, largest without either]"""
    positions = np.tile(np.concatenate([np.arange(PADDING), np.arange(LENGTH - PADDING)]), (2, 1))
    places, given = paddle.to_tensor(positions), {"attn_mask_startend_row_indices": paddle.to_tensor(ends(positions))}
    exact = _packed(_model(family, flash=False))
    with patch.object(paddle.nn.functional, "flashmask_attention", flashmask_attention):
        found = _model(family, flash=True)(paddle.to_tensor(_ids()), position_ids=places, **given)[0].numpy()
    alone = _model(family, flash=True)(paddle.to_tensor(_ids()), position_ids=places)[0].numpy()
    return [float(np.abs(other - exact).max() / np.abs(exact).max()) for other in (found, alone)]


def _masks_given(family: str) -> dict[str, list]:
    """{case: [shapes of the masks that Paddle's attention gets, each once]}"""
    attend, found = paddle.nn.functional.scaled_dot_product_attention, {}
    for case in ("causal", "packed"):
        shapes = found[case] = []

        def recorded(query, key, value, attn_mask=None, *args, shapes=shapes, **kwargs):
            shape = None if attn_mask is None else attn_mask.shape
            shapes.extend([shape] if shape not in shapes else [])
            return attend(query, key, value, attn_mask, *args, **kwargs)

        with patch.object(paddle.nn.functional, "scaled_dot_product_attention", recorded):
            CASES[case](_model(family, flash=True))
    return found


def _model(family: str, flash: bool):
    """With weights that make attention matter."""
    values = load_config(FAMILIES[family].rehearsal_config)
    config = getattr(transformers, FAMILIES[family].config_class)(**values)
    config.use_flash_attention, config.use_fused_rms_norm, config.num_hidden_layers = flash, False, 2
    paddle.seed(1)
    model = getattr(transformers, FAMILIES[family].model_class)._from_config(config, dtype="float32")
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.set_value(parameter * 4)
    model.eval()
    return model


def _ids() -> np.ndarray:
    return np.random.default_rng(0).integers(5, 250, (2, LENGTH))


def _causal(model) -> np.ndarray:
    return model(paddle.to_tensor(_ids()))[0].numpy()


def _left_padded(model) -> np.ndarray:
    seen = np.ones([2, LENGTH], "int64")
    seen[0, :PADDING] = 0
    return model(paddle.to_tensor(_ids()), attention_mask=paddle.to_tensor(seen))[0].numpy()[seen == 1]


def _packed(model) -> np.ndarray:
    positions = np.tile(np.concatenate([np.arange(PADDING), np.arange(LENGTH - PADDING)]), (2, 1))
    mask, positions = (paddle.to_tensor(one) for one in (apart(positions), positions))
    return model(paddle.to_tensor(_ids()), attention_mask=mask, position_ids=positions)[0].numpy()


def _with_prefix(model) -> np.ndarray:
    """Logits, and the gradient of the prefix."""
    adapter = add_prefix(model, SimpleNamespace(num_prefix_tokens=PREFIX), seed=1)
    adapter.table.set_value(adapter.table * 30)
    logits = adapter(paddle.to_tensor(_ids()))[0]
    logits.square().mean().backward()
    table = adapter.table.grad.numpy().reshape(-1)
    return np.concatenate([logits.numpy().reshape(-1), table / np.abs(table).max()])


def _one_after_cached(model) -> np.ndarray:
    """Logits of the token after CACHED others, of which the first of one sample are padding."""
    seen = np.ones([2, CACHED + 1], "int64")
    seen[0, :PADDING] = 0
    ids, mask = paddle.to_tensor(_ids()), paddle.to_tensor(seen)
    with paddle.no_grad():
        _, cache = model(ids[:, :CACHED], attention_mask=mask[:, :CACHED], use_cache=True)[:2]
        name = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"
        return model(
            ids[:, CACHED : CACHED + 1],
            attention_mask=mask,
            position_ids=paddle.full([2, 1], CACHED, dtype="int64"),
            **{name: cache},
            use_cache=True,
        )[0].numpy()


CASES = {
    "causal": _causal,
    "left padded": _left_padded,
    "packed": _packed,
    "prefix": _with_prefix,
    "one after cached": _one_after_cached,
}


def _masks_made(family: str) -> dict[str, list]:
    """{case: [shapes of the masks that the model looks at, the kernels taken]} on a card that has flash attention."""
    modeling = importlib.import_module(f"paddlenlp.transformers.{family}.modeling")
    model, found, stock = _model(family, flash=True), {}, modeling.is_casual_mask
    for case in ("causal", "left padded", "prefix"):
        shapes = []
        looked_at = patch.object(
            modeling, "is_casual_mask", lambda mask, to=shapes: to.append(mask.shape) or stock(mask)
        )
        with looked_at, pretended_card((8, 0), "float16") as taken, suppress(ValueError):
            CASES[case](model)
        found[case] = [shapes, sorted(set(taken))]
    found["return_dict"] = [sorted(model(paddle.to_tensor(_ids()), return_dict=True, output_hidden_states=True))]
    return found


def _pipeline() -> list:
    """[kinds of what embedding and layer hand on, how far the layer is off exact attention, relative]"""
    layers = {}
    for flash in (True, False):
        paddle.seed(1)
        config = transformers.LlamaConfig(**load_config("baichuan-rehearsal"), use_flash_attention=flash)
        layers[flash] = modeling_pp.LlamaEmbeddingPipe(config), modeling_pp.LlamaDecoderLayerPipe(config)
    (embed, layer), (exact_embed, exact_layer) = layers[True], layers[False]
    ids = paddle.to_tensor(_ids())
    handed, exact = (embed(ids), layer(embed(ids))), exact_layer(exact_embed(ids))[0]
    return [[type(one).__name__ for one in handed], float((handed[1] - exact).abs().max() / exact.abs().max())]


def alibi_columns() -> dict[str, list[float]]:
    """Return {dtype: [largest bias, how far the largest difference of two biases of a head is off]} for some of the
    40 heads of Baichuan-13B and 16,384 keys."""
    slopes, found = slopes_of(40)[::4], {"columns": ALIBI_COLUMNS}
    for dtype in ("bfloat16", "float16", "float32"):
        zeros = [paddle.zeros([1, length, len(slopes), 8], dtype=dtype) for length in (1, 16384, 16384)]
        query, key, _ = (x.astype("float32").numpy().astype("float64")[0] for x in widened(*zeros, slopes))
        bias = np.einsum("hd,khd->hk", query[0], key) / np.sqrt(query.shape[-1])
        right = np.array(slopes)[:, None] * np.arange(16384)
        found[dtype] = [float(bias.max()), float(np.abs(bias - right).max())]
    return found
