"""Loading a model's weights from a directory without a copy of them in host memory.

    model = load_model(LlamaForCausalLM, config, "float16", "checkpoints/llama-7b")

paddlenlp's from_pretrained reads whole files on each rank before the model takes its part. Here the parameters are
created without memory and without random values, and each is filled from its place in the file: a pipeline stage opens
its own layers only, a tensor parallel rank reads its slice, one tensor at a time. Host memory beyond the parameters:
that of one tensor (its slice under tensor parallelism), twice where the dtype changes.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel import PipelineLayer
from paddlenlp.generation import GenerationConfig
from paddlenlp.transformers.model_utils import no_init_weights

from data_tools.formats.json_files import read_object
from launch.checkpoint.ranks import gather, rank, world_size
from launch.checkpoint.stored_tensor import FLOATS, convert, not_finite, numpy_dtype
from launch.checkpoint.weight_files import Misfits, Weight, difference, find_weights, is_computed, listed
from launch.errors import UserError
from launch.families.parameters import layers

GENERATION_CONFIG = "generation_config.json"


def load_model(model_class, config, dtype: str, directory: str | Path, filled: "Callable[[Fill], None] | None" = None):
    """Return a model of `model_class` in `dtype` with the weights of a directory.

    float32 is rounded to nearest in half precision. filled: called after each parameter is filled; it may replace the
    values and release them.

    Raises:
        UserError: The same on every rank, where the weights are damaged or do not fit the model.
        DataError: If generation_config.json is damaged.
    """
    config.dtype = dtype
    model = without_values(model_class, config, dtype)
    run_fills(directory, plan_fills(model, directory), filled)
    if isinstance(model, PipelineLayer):
        model._synchronize_shared_weights()  # a tied head receives its values from the stage of the embedding
    if model.can_generate() and Path(directory, GENERATION_CONFIG).is_file():
        read_object(Path(directory, GENERATION_CONFIG))  # which says what is wrong with it
        model.generation_config = GenerationConfig.from_pretrained(str(directory))
    return model


def run_fills(directory: str | Path, fills: "list[Fill]", filled: "Callable[[Fill], None] | None" = None) -> None:
    """Read and set the values of all `fills`; where `filled` may release them, the largest first, beside the fewest.

    Raises:
        UserError: On every rank where values are beyond float16, NaN or infinite.
    """
    too_large, not_finite = [], []
    for fill in sorted(fills, key=lambda fill: -fill.parameter.size) if filled else fills:
        try:
            fill.run()
        except OverflowError as error:
            too_large.append(f"{fill.name} (up to {error.args[0]:.3g})")
            continue
        except FloatingPointError:
            not_finite.append(fill.name)
            continue
        if filled:
            filled(fill)
    _agree_on_range(directory, too_large, not_finite)


def plan_fills(model, directory: str | Path) -> "list[Fill]":
    """Find the values of each parameter of this rank; reads none yet.

    Raises:
        UserError: As load_model.
    """
    plan = _plan(model, directory)
    fix = "Take both from one model."
    agree(plan, lambda misfits: f"{directory}: the weights do not fit its config.json; {misfits}. {fix}")
    return plan.fills


# ---- a model without values


def without_values(model_class, config, dtype: str):
    """Return the model, whose parameters have a shape but no memory yet."""
    with ExitStack() as stack:
        stack.enter_context(no_init_weights())
        stack.enter_context(paddle.LazyGuard())
        if issubclass(model_class, PipelineLayer):
            # These two methods draw and send values regardless of both contexts.
            stack.enter_context(_replaced(model_class, "_init_weights"))
            stack.enter_context(_replaced(PipelineLayer, "_synchronize_shared_weights"))
        return model_class._from_config(config, dtype=dtype)  # pyright: ignore[reportAttributeAccessIssue]  # paddlenlp's


class _replaced:
    """A method that does nothing while the context lasts."""

    def __init__(self, owner: type, name: str):
        self.owner, self.name = owner, name

    def __enter__(self):
        self.original = getattr(self.owner, self.name)
        setattr(self.owner, self.name, lambda *_: None)

    def __exit__(self, *_):
        setattr(self.owner, self.name, self.original)


# ---- what goes where


@dataclass(frozen=True)
class Fill:
    """A parameter and its stored tensor.

    Attributes:
        part: The function from the stored tensor to this rank's part.
    """

    name: str
    parameter: paddle.Tensor
    stored: Weight
    part: Callable[[np.ndarray], np.ndarray]

    @property
    def dtype(self) -> str:
        """The dtype, by its name."""
        return str(self.parameter.dtype).removeprefix("paddle.")

    def difference(self) -> str | None:
        """Return how the stored tensor differs from the parameter; None where it fits. It reads nothing."""
        stand_in = np.broadcast_to(np.empty((), numpy_dtype(self.stored.dtype)), self.stored.shape)
        expected = tuple(self.parameter.shape)
        try:
            shape = tuple(self.part(stand_in).shape)
        except (AssertionError, ValueError, IndexError):  # numpy and paddlenlp, where the parts would be unequal
            shape = None
        if shape != expected:
            parts = "" if shape in (None, self.stored.shape) else f", a rank's part {list(shape)}"
            return difference(self.name, f"{list(self.stored.shape)}{parts}", str(list(expected)))
        if self.stored.dtype != self.dtype and not {self.stored.dtype, self.dtype} <= set(FLOATS):
            return difference(self.name, self.stored.dtype, self.dtype)
        return None

    def run(self) -> None:
        """Read the values and set them.

        Raises:
            OverflowError: For values beyond float16, FloatingPointError for values that are NaN or infinite.
        """
        values = convert(self.part(self.stored.open()), self.stored.dtype, self.dtype)
        if self.dtype in FLOATS and not_finite(values, self.dtype):
            raise FloatingPointError(self.name)
        place = paddle.framework._current_expected_place()
        self.parameter.get_tensor().set(np.asarray(values, order="C"), place)
        self.parameter._init_func = None  # LazyGuard's, which would draw random values

    def release(self) -> None:
        """Release the memory of the values; `run` reads them again."""
        self.parameter._clear_data()


@dataclass
class Plan:
    """The plan of what one rank will read.

    Attributes:
        stored: Names in the files.
        known: Names of its parameters.
        refusal: The reason why it cannot.
    """

    refusal: str | None = None
    stored: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    fills: list[Fill] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)


def _plan(model, directory: str | Path) -> Plan:
    try:
        weights = find_weights(directory, (rank(), world_size()))
    except (UserError, OSError) as error:
        return Plan(refusal=str(error))
    plan = Plan(stored=set(weights))
    parts: dict[str, Callable] = {}  # of the tensors that tensor parallelism shards: from the whole to a rank's part
    if model.config.tensor_parallel_degree > 1:
        parts = type(model).get_tensor_parallel_convert_actions(model.config, list(weights), ignore_error=True)
    replaced: dict[str, str] = getattr(model, "replaced", {})
    for names, parameter in _named_parameters(model):
        plan.known.update(names)
        there = next((name for name in names if name in weights), None)
        if there:
            plan.fills.append(Fill(there, parameter, weights[there], parts.get(there, _whole)))
        elif _comes_from_another_stage(model, names[0]):
            parameter.initialize()
        elif names[0] in replaced:
            parameter.initialize()
            plan.known.add(replaced[names[0]])
        elif isinstance(parameter, paddle.base.framework.EagerParamBase):
            plan.missing.add(names[0])
    return plan


def _named_parameters(model) -> list[tuple[list[str], paddle.Tensor]]:
    """Return each parameter and saved buffer once, with all of its names: a tied head has two."""
    by_identity: dict[int, tuple[list[str], paddle.Tensor]] = {}
    for name, parameter in model.state_dict().items():
        by_identity.setdefault(id(parameter), ([], parameter))[0].append(name)
    return list(by_identity.values())


def _whole(array: np.ndarray) -> np.ndarray:
    return array


def _comes_from_another_stage(model, name: str) -> bool:
    """Return whether a parameter is shared between pipeline stages and this one receives it."""
    if not isinstance(model, PipelineLayer):
        return False
    place, _, rest = model._single_to_pp_mapping[name].partition(".")
    return place == "shared_layers" and fleet.worker_index() != min(model.shared_comm[rest.split(".")[0]]["ranks"])


# ---- the same error on all ranks


def agree(plan: Plan, explain: Callable[[Misfits], str]) -> None:
    """Raise UserError on every rank where any rank's plan fails. explain: makes the message about misfits."""
    mine = {
        "refusal": plan.refusal,
        "stored": plan.stored,
        "known": plan.known,
        "missing": plan.missing,
        "different": {line for fill in plan.fills if (line := fill.difference())},
    }
    reports = gather(mine)
    refusal = next((report["refusal"] for report in reports if report["refusal"]), None)
    if refusal:
        raise UserError(refusal)
    all_of = {key: set().union(*(report[key] for report in reports)) for key in mine if key != "refusal"}
    extra = {name for name in all_of["stored"] - all_of["known"] if not is_computed(name)}
    misfits = Misfits(all_of["missing"], extra, all_of["different"])
    if misfits:
        raise UserError(explain(misfits))


def _agree_on_range(directory: str | Path, too_large: list[str], not_finite: list[str]) -> None:
    """Raise UserError on every rank where any rank has names in a list."""
    found = gather((too_large, not_finite))
    large, broken = (sorted({name for of_rank in found for name in of_rank[i]}) for i in (0, 1))
    if broken:
        raise UserError(
            f"{directory}: NaN or infinite values in {listed(broken)}. The training that wrote them had diverged, or "
            "the file is damaged: take an earlier checkpoint, or copy it again."
        )
    if large:
        raise UserError(
            f"{directory}: values beyond float16's 65,504 in {listed(large)}. Train in bfloat16 (--bf16 1 --fp16 0)."
        )


# ---- a model with one layer at a time in memory


def open_layerwise(model_class, config, directory):
    """Return a float32 model for evaluation whose layers read their weights when they run, and release them afterwards.

    Raises:
        UserError: If the weights are damaged or do not fit the model.
    """
    config.dtype = "float32"
    model = without_values(model_class, config, "float32")
    fills = {id(fill.parameter): fill for fill in plan_fills(model, directory)}
    for layer in _transformer_layers(model):
        _fill_while_it_runs(layer, [fills.pop(id(parameter)) for parameter in layer.parameters()], directory)
    run_fills(directory, list(fills.values()))
    model.eval()
    return model


def _fill_while_it_runs(layer: paddle.nn.Layer, fills: list[Fill], directory: str | Path) -> None:
    def read(layer, inputs) -> None:
        run_fills(directory, fills)

    def release(layer, inputs, outputs) -> None:
        for fill in fills:
            fill.release()

    layer.register_forward_pre_hook(read)  # pyright: ignore[reportArgumentType]  # Paddle's types of hooks lack None
    layer.register_forward_post_hook(release)  # pyright: ignore[reportArgumentType]


def _transformer_layers(model) -> list[paddle.nn.Layer]:
    """Return the layers of the outermost list that has as many as the model: a layer may have as many experts."""
    count = layers(model.config.to_dict())
    found, inside = [], set()
    for container in model.sublayers():  # outer ones before those inside
        if isinstance(container, paddle.nn.LayerList) and len(container) == count and id(container) not in inside:
            found += container
            inside |= {id(inner) for inner in container.sublayers()}
    return found
