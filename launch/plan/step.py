"""One rank's training step, replayed: what it keeps between steps, and the peak of each phase of a step."""

import gc
from dataclasses import dataclass
from math import prod

from launch.families.arithmetic import MOMENT_ELEMENTS, NOISE_OFFSETS
from launch.families.forward import FLOAT32, Model
from launch.methods.preference_flags import ADAPTER_OFF, PRECOMPUTED, SECOND_COPY
from launch.plan.job import FACTORED, NARROW, Job
from launch.plan.shards import ADAPTER, PlannedTensor, stage_layers, tensors_of
from launch.plan.states import REFERENCE, States, gradients_of, states_of
from launch.tape.autograd import Leaf, Memory, Storage, Tensor, backward, keep_graph

LOADING, FORWARD, BACKWARD, OPTIMIZER = "loading", "forward", "backward", "optimizer step"
EVALUATION, CHECKPOINT = "evaluation", "checkpoint"
# cudaMalloc's and Paddle's smallest unit (FLAGS of paddle/phi/core/memory/allocation: kMinChunkSize), bytes.
GRANULE = 256


@dataclass(frozen=True)
class Place:
    """The place of a rank: its pipeline stage, and its number in its sharding group."""

    stage: int = 0
    shard: int = 0


def replay(job: Job, place: Place) -> dict[str, dict[str, int]]:
    """Return the bytes by part at the peak of loading, and of each phase of a step in the middle of training."""
    memory = Memory(GRANULE if job.on_gpu else 1)
    memory.begin(LOADING)
    load(job, place, memory)
    collecting = gc.isenabled()
    if collecting:  # or another thread has disabled it, and will enable it
        gc.disable()  # none of a hundred thousand new objects is garbage: to look for it is a sixth of the time
    try:
        Step(job, place, memory).run()
        return memory.peaks()
    finally:
        if collecting:
            gc.enable()


def load(job: Job, place: Place, memory: Memory) -> None:
    """Load the model before it is sharded (launch/checkpoint/model_loader.py).

    Of a base that is quantized while it is read there is one weight as it was (launch/adapters/quantized_layers.py):
    the largest first. Parameters that are offloaded pass one by one (launch/offload/group_sharded.py).
    """
    tensors = [one for one in tensors_of(job, place.stage) if one.kind != ADAPTER]
    offloaded, there, peak = job.offload.parameters, 0, 0
    for one in sorted(tensors, key=lambda one: -one.size):
        released = one.base or one.on_host  # as it was read
        there += one.nbytes if released or not offloaded else 0
        peak = max(peak, there + (one.size * job.item if released or offloaded else 0))
    memory.take(peak, "parameters")
    if job.reference == SECOND_COPY:
        memory.take(sum(one.nbytes for one in tensors_of(job.compared, place.stage)), REFERENCE)


class Step:
    """A step of training, simulated."""

    def __init__(self, job: Job, place: Place, memory: Memory):
        self.job, self.place, self.memory = job, place, memory
        self.tensors = tensors_of(job, place.stage)
        self.states: States = states_of(job, place.stage)[place.shard]
        self.kept = self._take(self.states.parts)
        self.gradients = gradients_of(job, memory, self.states, place.shard)
        self.weights = {one.name: self._weight(one) for one in self.tensors}
        self.model: Model = job.family.forward(job, memory, self.weights)
        self.layers = stage_layers(job)[place.stage]
        self.kept += self._take(self.model.tables(len(self.layers)))
        self.kept += self._take({"moments": self.noise})
        if job.reference == SECOND_COPY:
            copy = job.compared
            tables = copy.family.forward(copy, memory, {}).tables(len(stage_layers(copy)[place.stage]))
            self.kept += self._take({REFERENCE: sum(tables.values())})

    def _take(self, parts: dict[str, int]) -> list[Storage]:
        return [self.memory.take(size, part) for part, size in parts.items()]

    @property
    def updated(self) -> list[tuple[int, ...]]:
        """Shapes of the tensors that this rank updates."""
        slices = self.states.slices
        return [(slices[one.name],) if one.name in slices else one.shape for one in self.tensors if one.trained]

    @property
    def noise(self) -> int:
        """Bytes of the random numbers that moments are rounded with."""
        if self.job.eight_bits:
            return 4 * (min(max(map(prod, self.updated)), MOMENT_ELEMENTS) + NOISE_OFFSETS)
        if self.job.factored and self.job.item == FLOAT32:  # these weights are not rounded
            return 0
        each = FACTORED[self.job.item] if self.job.factored else NARROW
        return max((self.job.update_bytes(shape) for shape in self.updated), default=0) * 4 // each

    @property
    def is_first(self) -> bool:
        """Whether the stage is the first."""
        return self.place.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether the stage is the last."""
        return self.place.stage == self.job.layout.pipeline_parallel_degree - 1

    @property
    def sends_mask(self) -> bool:
        """Whether stages send each other the mask of a micro batch."""
        return self.job.layout.pipeline_parallel_degree > 1 and self.job.masked

    def _weight(self, one: PlannedTensor) -> Tensor:
        """Return a weight as operators see it: its bytes are among the states."""
        leaf = Leaf(self.memory, one.name, one.shape, one.size) if one.trained else None
        if leaf:
            self.gradients.watch(leaf)
        weight = Tensor(one.shape, self.job.item, None, leaf)
        if one.name in self.states.slices:
            weight.gathered = weight.nbytes
        return weight

    def run(self) -> None:
        """Run the micro batches of a step."""
        stages = self.job.layout.pipeline_parallel_degree
        in_flight = min(stages - self.place.stage, self.job.accumulation)
        of_token = (1 if self.job.reward_model else 2) + (self.job.layout.sep_parallel_degree > 1)  # its position
        ids = of_token * self.job.batch * self.job.rank_length * 8  # and labels, int64
        self.kept.append(self.memory.take(ids, "embedding"))
        if self.job.reference == PRECOMPUTED:  # comes with the labels
            self.kept.append(self.memory.take(self.job.batch * self.job.rank_length * FLOAT32, "logits and loss"))
        if self.job.dense_mask:
            at_once = self.job.accumulation if stages > 1 else 1  # batches that are on the device
            self.kept.append(self.memory.take(at_once * self.job.batch * self.job.sequence_length**2, "attention"))
        self.memory.begin(FORWARD)
        if self.job.reads_unrelated:
            self.read(self.job.changed(recompute="", loss_chunk_tokens=self.chunk_of_training()))
        waiting = [self.forward() for _ in range(in_flight)]
        self.memory.begin(BACKWARD)
        self.backward(*waiting.pop(0))
        if self.job.accumulation > in_flight and self.states.slices:  # stage 3 alone has more after the first
            self.memory.begin(FORWARD)
            waiting.append(self.forward())
            self.memory.begin(BACKWARD)
            self.backward(*waiting.pop(0))
        for output, received in waiting:
            keep_graph(output)
            self.model.alive(*received)
        self.memory.begin(OPTIMIZER)
        self.update()
        if self.job.eval_batch:
            self.memory.begin(EVALUATION)
            self.evaluate()
        self.memory.begin(CHECKPOINT)
        self.gather_largest()
        self.memory.alive(*self.kept, *self.model.kept(), *self.gradients.kept())

    def update(self) -> None:
        """Take the memory of the optimizer's step that comes from host memory.

        It is all states at once, or those of one tensor and of the next (launch/offload/streamed_optimizer.py).
        """
        if self.job.offload.returns:
            self.memory.alive(*self._take(self.states.host))
        elif self.states.updates:
            pairs = zip(self.states.updates, (*self.states.updates[1:], 0), strict=True)
            self.memory.take(max(sum(pair) for pair in pairs), "moments")
        if not self.job.in_backward:
            self.memory.take(max((self.job.update_bytes(shape) for shape in self.updated), default=0), "moments")

    def evaluate(self) -> None:
        """Run an evaluation. A pipeline's has the micro batches of training."""
        stages = self.job.layout.pipeline_parallel_degree
        batch = self.job.micro_batch if stages > 1 else self.job.eval_batch
        self.read(self.job.changed(micro_batch=batch, recompute=""))

    def read(self, job: Job) -> None:
        """Run a forward pass that saves nothing.

        Args:
            job: As in training, but for its batch and how the layers compute.
        """
        training = self.model
        self.model = job.family.forward(job, self.memory, self.weights)
        with self.memory.without_gradients():
            self.forward()
        self.memory.alive(*self.model.kept())
        self.model = training

    def gather_largest(self) -> None:
        """Take the memory of the largest sharded tensor: they are put together one by one before they are written."""
        saved = [one for one in self.tensors if one.trained]
        largest = max((one.size for one in saved), default=0) * self.job.item
        if any(tensor.sharded for tensor in saved):
            largest *= self.job.layout.tensor_parallel_degree
        if self.job.layout.sharding == "stage3" or self.job.layout.tensor_parallel_degree > 1:
            self.memory.take(largest, "communication")

    def forward(self) -> tuple[Tensor, list[Tensor]]:
        """Run a micro batch, by the reference first.

        Return the tensor that backward begins with, and the tensors of the stage before: activations, and a mask.
        """
        baseline = self.losses_of_reference() if self.job.compares else None
        output, received = self.forward_pass()
        self.memory.alive(baseline)
        return output, received

    def chunk_of_training(self, teacher: dict | None = None) -> str:
        """Return --loss_chunk_tokens of a pass without gradients that computes in the chunks of training."""
        job = self.job.changed(config=teacher or self.job.config)
        vocabulary, ranks = job.config["vocab_size"], job.layout.tensor_parallel_degree
        chunk = job.loss_chunk(vocabulary // (1 if vocabulary % ranks else ranks), job.trains_all)
        return str(chunk or "off")

    def losses_of_reference(self) -> Storage:
        """Run the reference's forward pass, which saves nothing (launch/training/reference.py)."""
        policy, mine = self.model, self.layers
        job = self.job.compared.changed(
            micro_batch=policy.batch // self.job.rows, loss_chunk_tokens=self.chunk_of_training(self.job.teacher)
        )
        weights = {one.name: Tensor(one.shape, job.item, None) for one in tensors_of(job, self.place.stage)}
        if self.job.reference == ADAPTER_OFF:
            for name, weight in weights.items():
                weight.gathered = self.weights[name].gathered
        self.model, self.layers = job.family.forward(job, self.memory, weights), stage_layers(job)[self.place.stage]
        with self.memory.without_gradients():
            self.forward_pass()
        self.memory.alive(*self.model.kept())
        self.model, self.layers = policy, mine
        return self.memory.take(policy.batch * policy.length * FLOAT32, "logits and loss")

    def forward_pass(self) -> tuple[Tensor, list[Tensor]]:
        """Run the model's forward pass and return as `forward` does."""
        model = self.model
        self.gradients.begin()
        mask = model.prepare()
        model.read_prefix()
        received = []
        if self.is_first:
            x = model.embed()
        else:
            with self.memory.of("communication"):
                x = model.ops.new(model.shape, model.item)
                x.node = Leaf(self.memory, "received", x.shape, x.elements)
            received = [x, *([mask] if mask and self.sends_mask else [])]
        for index in self.layers:
            x = model.layer_block(index, x, mask)
            mask = self._handed_on(mask)
        if not self.is_last:
            return x, received
        x = model.norm(x)
        model.alive(mask)
        logits = model.score(x) if self.job.reward_model else model.logits(x)
        loss = self.loss(logits)
        model.alive(x, logits, *received)
        return loss, received

    def _handed_on(self, mask: Tensor | None) -> Tensor | None:
        """Return the mask for the next stage.

        Layers of a pipeline give the next one a copy (paddlenlp, modeling_pp.py of each family, return_args).
        """
        if mask is None or not self.sends_mask:
            return mask
        with self.memory.of("attention"):
            copy = self.model.ops.new(mask.shape, mask.item)
        self.model.alive(mask)
        return copy

    def backward(self, output: Tensor, received: list[Tensor]) -> None:
        """Run the backward pass."""
        gradient = None
        if not self.is_last:
            gradient = self.memory.take(output.nbytes, "communication")
        backward(output, gradient)
        if received:
            node = received[0].node
            assert isinstance(node, Leaf) and isinstance(node.gradient, Storage)
            self.memory.alive(*(x.storage for x in received), node.gradient)

    def loss(self, logits: Tensor) -> Tensor:
        """Return the mean over tokens; of parallel logits a sum over ranks."""
        ops = self.model.ops
        with self.memory.of("logits and loss"):
            if logits.shape[-1] == 1:  # scores, or losses already: in chunks
                losses = logits
            else:
                logits = logits if self.job.own_loss else self.model.for_loss(logits)
                losses = self.model.entropy(ops.cast(logits, FLOAT32))
            loss = ops.record(ops.new((1,), FLOAT32), [losses])
            ops.alive(logits)
            return loss
