"""Training runs on one to eight cards that others have published, with the settings that their sources state.

benchmarks/published_runs.json has one entry a source (a repository or a page): its address, the settings of all its
rows, what the source does not state and is assumed here, what was left out and why, and its rows. In a row

    card, cards, layout     the kind of card, how many, and "tensor2 sharding4 stage1"; no layout: one rank
    batch, batches, length  samples of a micro batch, micro batches a step, tokens of a sample
    states                  "pure": weights, gradients and moments in 16 bits; "master": float32 weights and moments
    lora, base              rank and modules of adapters; how the frozen base is quantized
    fused_norm, chunked     norms and rotary embeddings by one kernel each; the loss in so many parts, or by "liger"
    logit_bytes             of a logit at the peak of the tool's loss, by its source: 12 where transformers keeps a
                            float32 copy, a shifted one and its log-softmax, 2 more where it has the logits in 16 bits,
                            too (4.46 and later), 4 less with a kernel that writes the gradient in place
    flash_rate              of the tool's flash attention as a share of version 2's: 0.5 for version 1 and for Triton's
                            (arXiv 2307.08691: about twice as fast)
    class                   what the engine lacks: "fused" (kernels of the loss, rotary embeddings, norms, adapters)
                            or "compiled" (torch.compile); such rows are calibrated apart
    memory, counted         GiB of a card, of each pipeline stage where the source has them, and what counts them
    speed                   tokens a second of a card

Whole sources belong to one half. Sources in the order that this seed shuffles them into go to the half that has fewer
rows; FlagPerf begins the first, because constants of the planner were once chosen on another of its tables. "drawn" is
how many rows a source had when this was done; a later source has 0, and belongs to the first half. Constants may be
chosen on the first half alone.
"""

import json
import random
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

from launch.config.layout import Layout
from launch.families.named_configs import load_config
from launch.plan.hardware import CARDS, Card
from launch.plan.job import BFLOAT16, FLOAT32, ITEM, Engine, Job, Lora
from launch.tape.quantized import Format

FILE = Path(__file__).with_suffix(".json")
SEED = 39
FITTED_BEFORE = "FlagPerf"
PLAIN = "plain"
LIGER = "liger"
PADDLE = "PaddleNLP"
BASES = {"nf4": Format("nf4"), "nf4-dq": Format("nf4", double_quant=True)}


@dataclass(frozen=True)
class PublishedRun:
    """A published run.

    Attributes:
        row: Its settings and results, with its source's.
    """

    source: str
    half: int
    row: dict
    config: dict

    @property
    def tool(self) -> str:
        """The tool that trained."""
        return self.row["tool"]

    @property
    def kind(self) -> str:
        """The class of the run."""
        return self.row.get("class", PLAIN)

    @property
    def card(self) -> Card | None:
        """The kind of card; None for one that the catalogue lacks: such a row has memory alone."""
        return CARDS.get(self.row["card"])

    @cached_property
    def job(self) -> Job:
        """The run as a job of the planner."""
        row, lora = self.row, self.row.get("lora")
        half = row.get("dtype", BFLOAT16)
        master = row["states"] == "master"
        fused = self.kind != PLAIN or bool(row.get("fused_norm"))
        return Job(
            config=self.config,
            layout=layout_of(row.get("layout", "")),
            micro_batch=row["batch"],
            accumulation=row["batches"],
            sequence_length=row["length"],
            compute=half,
            amp="O2",
            master_weights=master,
            moment_item=ITEM[FLOAT32 if master else half],
            flash_attention=row["flash"],
            fused_rms_norm=fused,
            fused_rope=fused,
            recompute=row["recompute"],
            sequence_parallel=bool(row.get("sequence")) and "tensor" in row["layout"],
            adapter=Lora(lora["rank"], tuple(lora["targets"].split())) if lora else None,
            base=BASES[row["base"]] if "base" in row else None,
            loss_chunk_tokens=self._chunk(row["chunked"]) if row.get("chunked") else "off",
            engine=Engine(recomputes_first=self.tool != PADDLE, flash_rate=row.get("flash_rate", 1.0)),
        )

    def _chunk(self, parts: int | str) -> str:
        """Return the tokens of a part; Liger's kernel takes a power of two whose logits are as large as its input."""
        tokens = self.row["batch"] * self.row["length"]
        if parts != LIGER:
            return str(tokens // int(parts))
        return str(1 << (ceil(tokens / ceil(self.config["vocab_size"] / self.config["hidden_size"])) - 1).bit_length())


def layout_of(words: str) -> Layout:
    """Return the layout that words such as "tensor2 sharding4 stage1" mean."""
    stage = "".join(word for word in words.split() if word.startswith("stage"))
    degrees = {word.rstrip("0123456789"): int(word[-1]) for word in words.split() if word != stage}
    sharding, tensor, pipeline = (degrees.get(name, 1) for name in ("sharding", "tensor", "pipeline"))
    return Layout(1, sharding, tensor, pipeline, stage)


def read() -> dict:
    """Return the content of the file."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def halves(sources: list[dict]) -> dict[int, list[str]]:
    """Return the names of each half's sources as the seed draws them, without later ones."""
    rows = {source["name"]: source["drawn"] for source in sources if source["drawn"]}
    names = sorted(set(rows) - {FITTED_BEFORE})
    random.Random(SEED).shuffle(names)
    drawn = {1: [FITTED_BEFORE], 2: []}
    for name in names:
        smaller = min(drawn, key=lambda half: sum(rows[one] for one in drawn[half]))
        drawn[smaller].append(name)
    return drawn


def runs() -> list[PublishedRun]:
    """Return all rows of all sources."""
    content = read()
    models, found = content["models"], []
    for source in content["sources"]:
        for row in source["rows"]:
            row = {"tool": source["tool"], **source["common"], **row}
            config = models[row["model"]] if row["model"] in models else load_config(row["model"])
            if row.get("untied"):
                config = config | {"tie_word_embeddings": False}
            found.append(PublishedRun(source["name"], source["half"], row, config))
    return found
