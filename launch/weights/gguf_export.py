"""Export to GGUF, the format of llama.cpp, Ollama and LM Studio: a model, or a LoRA adapter alone.

Weights pass through memory tensor by tensor. The file is read back as an import would read it: its configuration, its
weights within the rounding of their type, and the ids that its tokenizer gives.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_tools.progress import progress
from data_tools.text.encoders import load_encoder
from launch.adapters.lora_files import read_lora
from launch.checkpoint.stored_tensor import convert
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import gives_scores, head_size
from launch.families.registry import family_of_config, their_name
from launch.models.rotary_scaling import ORIGINAL
from launch.weights.conversion import our_config, rows_at_once, their_config
from launch.weights.gguf_file import block_of, read_gguf, row_order
from launch.weights.gguf_names import (
    EXPERT_SIZES,
    FREQUENCIES,
    MODEL_TYPES,
    NORMALIZED,
    SIZES,
    frequency_factors,
    gguf_name,
    huggingface_tensors,
    read_config,
    turned_heads,
)
from launch.weights.gguf_tokenizer import probes, tokenizer_metadata, write_tokenizer
from launch.weights.k_quants import kind_of, pack
from launch.weights.model_directories import Exported, TensorSource, parameter_sources
from launch.weights.modelfile import write_modelfile
from launch.weights.whole import written_whole

# QUANT -> general.file_type, llama.cpp's number for a file that is mostly of this type.
QUANTS = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2, "q4_k_m": 15}
# The largest root mean square of what packing adds, as a part of that of the weights.
ROUNDING = {"Q8_0": 0.02, "Q6_K": 0.05, "Q5_0": 0.15, "Q4_K": 0.2, "Q4_0": 0.25}
LARGEST_FLOAT16 = 65504
LEAST_SUM = 2.0**-14  # by which llama.cpp divides the weights of a token's experts, at least


def export_gguf(source: Path, target: Path, quant: str) -> tuple[Exported, Path]:
    """Write `target`, a directory with a GGUF file and a Modelfile of Ollama, from a model directory of ours.

    Raises UserError, and leaves nothing behind, where llama.cpp has no such model or tokenizer.
    """
    config = load_config(str(source))
    _require_known(config)
    sources = parameter_sources(config, source)
    grouped: dict[str, list[TensorSource]] = {}
    for item in sorted(sources, key=lambda one: gguf_name(one.place.name, config)[1] or 0):
        grouped.setdefault(gguf_name(item.place.name, config)[0], []).append(item)
    texts, line = tokenizer_metadata(source, config)
    with written_whole(target) as directory:
        path = directory / f"{target.name}.gguf"
        kinds = _write(path, config, grouped, texts, quant)
        _read_back(path, config, sources, source)
        write_modelfile(source, path, config)
    size = sum(item.parameter.size for item in sources)
    used = [kind for kind in dict.fromkeys(kinds.values()) if kind != "F32"]
    return Exported(family_of_config(config), size, used, line, False), target / path.name


def _require_known(config: dict) -> None:
    family = family_of_config(config)
    if config["model_type"] not in MODEL_TYPES or config.get("alibi") or gives_scores(config):
        allowed = ", ".join(sorted(MODEL_TYPES))
        what = "a reward model" if gives_scores(config) else family.title
        raise UserError(f"FORMAT=gguf: found {what}, allowed: models that write text, of {allowed}.")
    fixed, found = NORMALIZED.get(config["model_type"]), bool(config.get("norm_topk_prob"))
    if fixed not in (None, found):
        raise UserError(
            f"FORMAT=gguf: norm_topk_prob: found {found}, allowed: {fixed}: llama.cpp ignores it in a {family.title}."
        )
    if (found := config.get("moe_norm_min", 0.0)) > LEAST_SUM:
        raise UserError(
            f"FORMAT=gguf: moe_norm_min: found {found}, allowed: {LEAST_SUM:.2g} or less: llama.cpp has no such bound."
        )
    block = config.get("rope_scaling") or {}
    kind, more = block.get("rope_type"), block.keys() - {"rope_type", "factor", ORIGINAL}
    if kind == "dynamic" or (kind == "yarn" and more):
        raise UserError(
            f"FORMAT=gguf: rope_scaling: found {block}, allowed: linear, llama3, yarn with its factor alone."
        )


def _write(path: Path, config: dict, grouped: dict[str, list[TensorSource]], texts: dict, quant: str) -> dict[str, str]:
    """Write the file; return the type of each tensor."""
    from gguf import GGMLQuantizationType, GGUFWriter

    architecture, layers = MODEL_TYPES[config["model_type"]], config["num_hidden_layers"]
    writer = GGUFWriter(None, architecture)
    writer.add_type("model")
    writer.add_name(path.stem)
    writer.add_file_type(QUANTS[quant])
    writer.add_quantization_version(2)
    _add_config(writer, architecture, config)
    for key, value in texts.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}.get(type(value), writer.add_array)
        add(key, value)
    kinds, tied = {}, "output.weight" not in grouped
    experts = config.get("num_local_experts") or config.get("num_experts") or 0
    for name, items in grouped.items():
        shape = _shape(items)
        kind = kinds[name] = kind_of(name, shape, quant.upper(), layers, experts, tied)
        block, size = block_of(kind)
        bytes_shape = (*shape[:-1], shape[-1] // block * size)
        kind = GGMLQuantizationType[kind]
        writer.add_tensor_info(name, bytes_shape, np.dtype(np.uint8), int(np.prod(bytes_shape)), kind)
    scaling = config.get("rope_scaling") or {}
    factors = frequency_factors(config, scaling) if scaling.get("rope_type") == "llama3" else None
    if factors is not None:
        writer.add_tensor_info(FREQUENCIES, factors.shape, factors.dtype, factors.nbytes)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    with progress("exporting", sum(item.stored.nbytes for items in grouped.values() for item in items)) as advance:
        for name, items in grouped.items():
            pieces = [pack(rows, kinds[name]) for rows in _rows(name, items, config, kinds[name])]
            writer.write_tensor_data(np.concatenate(pieces))
            advance(sum(item.stored.nbytes for item in items))
    if factors is not None:
        writer.write_tensor_data(factors)
    writer.close()
    return kinds


def _add_config(writer, architecture: str, config: dict) -> None:
    theirs = their_config(config, "float32")
    scaling = theirs.get("rope_scaling")
    sizes = {key: theirs[name] for key, name in (SIZES | EXPERT_SIZES.get(config["model_type"], {})).items()}
    if "moe_num_shared_experts" in theirs:
        sizes["expert_shared_feed_forward_length"] = config["shared_expert_intermediate_size"]
    if not scaling:  # a window ends the positions
        sizes["context_length"] = config["max_position_embeddings"]
    head = head_size(config)
    sizes |= {"vocab_size": config["vocab_size"], "attention.head_count_kv": theirs["num_key_value_heads"]}
    sizes |= {"attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head}
    for key, value in sizes.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(theirs["rms_norm_eps"])
    writer.add_rope_freq_base(theirs["rope_theta"])
    if scaling and scaling["type"] in ("linear", "yarn"):
        writer.add_string(f"{architecture}.rope.scaling.type", scaling["type"])
        writer.add_float32(f"{architecture}.rope.scaling.factor", scaling["factor"])
        writer.add_uint32(f"{architecture}.rope.scaling.original_context_length", config["rope_scaling"][ORIGINAL])


def _shape(items: list[TensorSource]) -> tuple[int, ...]:
    """Return the shape in GGUF: matrices of experts in one tensor, and the gate of a shared one as a vector."""
    shape = items[0].place.shape
    if ".experts." in items[0].place.name:
        return (len(items), *shape)
    return shape[1:] if shape[0] == 1 and len(shape) == 2 else shape


def _rows(name: str, items: list[TensorSource], config: dict, kind: str) -> Iterator[np.ndarray]:
    """Yield float32 rows in the order of the file. Raises UserError where a value is too large for float16."""
    for item in items:
        ours = item.stored.open()
        ours = ours.T if item.place.transposed else ours
        theirs = ours if ours.ndim == 2 else ours[None]
        heads = turned_heads(name, config)
        order = row_order(theirs.size // theirs.shape[-1], heads, restore=False) if heads else None
        step = rows_at_once(theirs)
        for start in range(0, len(theirs), step):
            piece = theirs[start : start + step] if order is None else theirs[order[start : start + step]]
            piece = convert(np.ascontiguousarray(piece), item.stored.dtype, "float32")
            if kind == "F16" and (largest := float(np.abs(piece).max(initial=0))) > LARGEST_FLOAT16:
                raise UserError(f"{name}: a value of {largest:.3g} is too large for f16; QUANT=bf16.")
            yield piece


def _read_back(path: Path, config: dict, sources: list[TensorSource], source: Path) -> None:
    """Raise UserError unless an import of the file gives this configuration, these weights and these ids."""
    file = read_gguf(path)
    theirs = read_config(file)
    again = our_config(theirs, str(path))
    for key in ("hidden_size", "num_key_value_heads", "rope_theta", "rms_norm_eps", "rope_scaling", "vocab_size"):
        if again.get(key) != config.get(key):
            raise UserError(f"{path.name}: {key} is {again.get(key)} when read back, {config.get(key)} in {source}.")
    stored = huggingface_tensors(file, theirs, [item.place.name for item in sources])
    with progress("reading back", sum(item.stored.nbytes for item in sources)) as advance:
        for item in sources:
            found = stored[item.place.name]
            packed, off, size = found.open(), 0.0, 0.0
            ours = item.stored.open()
            ours = ours.T if item.place.transposed else ours
            step = rows_at_once(ours)
            for start in range(0, len(ours), step):
                expected = convert(np.ascontiguousarray(ours[start : start + step]), item.stored.dtype, "float32")
                rounded = convert(convert(expected, "float32", found.dtype), found.dtype, "float32")
                piece = convert(np.ascontiguousarray(packed[start : start + step]), found.dtype, "float32")
                off += float(np.square(piece - rounded).sum(dtype=np.float64))
                size += float(np.square(expected).sum(dtype=np.float64))
            if not off <= ROUNDING.get(found.kind, 0.0) ** 2 * size:
                raise UserError(f"{item.place.name} is not {item.parameter.name} when read back: is the disk sound?")
            advance(item.stored.nbytes)
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(file, Path(folder))
        one, other = load_encoder(folder), load_encoder(source)
        for text in probes(other):
            if one.encode([text])[0].tolist() != other.encode([text])[0].tolist():
                raise UserError(f"{source}: llama.cpp would read {text!r} as other tokens than this tokenizer does.")


def export_adapter_gguf(source: Path, base: Path | None, target: Path) -> int:
    """Write `target`, a directory with a LoRA adapter as GGUF; return the number of its tensors.

    base: the model directory; default: as the adapter names it. Raises UserError where llama.cpp has no such adapter.
    """
    from gguf import GGUFWriter

    lora = read_lora(source)
    if lora.is_dora:
        raise UserError("FORMAT=gguf: found a DoRA, and llama.cpp has A and B alone. make merge, then export.")
    if lora.rows:
        raise UserError("FORMAT=gguf: found rows of tokens, and llama.cpp has A and B alone. make merge, then export.")
    config = load_config(str(base or lora.config.get("base_model_name_or_path") or ""))
    _require_known(config)
    model_type, tensors = config["model_type"], []
    for layer, pair in lora.layers.items():
        name, expert = gguf_name(their_name(f"{layer}.weight", model_type), config)
        if expert is not None:
            raise UserError("FORMAT=gguf: found a LoRA of experts, allowed: of other layers. make merge, then export.")
        a, b = (convert(np.ascontiguousarray(one.open().T), one.dtype, "float32") for one in (pair.a, pair.b))
        heads = turned_heads(name, config)
        tensors += [
            (f"{name}.lora_a", a),
            (f"{name}.lora_b", b[row_order(len(b), heads, restore=False)] if heads else b),
        ]
    with written_whole(target) as directory:
        writer = GGUFWriter(directory / f"{target.name}.gguf", MODEL_TYPES[model_type])
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", lora.scaling * lora.config["r"])
        for name, tensor in tensors:
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return len(tensors)
