"""What failures cost a run: how often they interrupt it, what a restart and a checkpoint take, the share that trains.

Interruptions are a Poisson process whose rate grows with the number of cards. Each ends in a restart from the newest
whole checkpoint, and whoever starts the run again does it at once.

    goodput = plan_goodput(job, card, step_seconds=10.0, mtbf_hours=MTBF_HOURS)
    goodput.share(200), goodput.best_save_steps
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, sqrt

from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory_model import disk_bytes, restored_bytes
from launch.plan.time_plan import DAY
from launch.plan.work import Pace

# Hours between two interruptions of a card: 419 unexpected ones within 54 days on 16,384 cards, those of hosts, network
# and software among them. Source: arXiv 2407.21783 (Llama 3), section 3.3.4 and table 5.
MTBF_HOURS = round(54 * 24 * 16_384 / 419)

# Bytes a second of one rank: the copy to host memory that a save in the background begins with, and a save that is
# hashed and on the disk. Source: benchmarks/results/checkpoint_stall.json, medians.
COPY_RATE, WRITE_RATE = 11e9, 0.43e9
# A copy from the card to memory that is not page-locked reaches half of a pinned one's rate (launch/plan/work.py).
PAGEABLE = 0.5
# Until the others know that a node has lost power or network (launch/nodes/network.py: KEEPALIVE). Ranks and nodes that
# end are noticed within seconds.
NOTICE_SECONDS = 60.0
# From the command to the end of a run of one step of a tiny model on a CPU; bytes a second of one rank that hashes a
# checkpoint, and of one that reads it. Source: benchmarks/results/restart.json.
START_SECONDS, HASH_RATE, READ_RATE = 5.5, 1.6e9, 10.7e9
FIRST_COPY = "first copy"  # a part of a restart
# Saves that are this close cost what is not counted: files that a shared file system creates, work of the host beside
# training. At one interruption an hour, half a minute less to be trained again is 0.8 % of the time.
SHORTEST_INTERVAL = 60.0
LONG = 700  # exp of more has no floating-point number


@dataclass(frozen=True)
class Goodput:
    """The share of time in which a run makes progress.

    Attributes:
        mtbf: Seconds between two interruptions of the run.
        step: Seconds of a training step.
        stall: Seconds that training waits for a checkpoint.
        latency: Seconds after that until it is whole; meanwhile no other can begin.
        restart: Seconds from an interruption to the next step, by part.
    """

    mtbf: float
    step: float
    stall: float
    latency: float
    restart: dict[str, float]

    @property
    def per_day(self) -> float:
        """Interruptions."""
        return DAY / self.mtbf

    @property
    def restart_seconds(self) -> float:
        """Seconds from an interruption to the next step."""
        return sum(self.restart.values())

    def share(self, save_steps: int) -> float:
        """Return the share of all time in steps that no interruption undoes, with `save_steps` between checkpoints.

        Daly's complete model (Future Generation Computer Systems 22, 2006, pages 303 to 312), in which a restart may be
        interrupted, too. Beyond it, a checkpoint counts once it is whole: the run must live on for the latency.
        """
        interval = save_steps * self.step
        period = max(interval, self.latency) + self.stall
        if period > LONG * self.mtbf:
            return 0.0
        lives = exp(-(self.latency + self.restart_seconds) / self.mtbf)
        return interval / self.mtbf * lives / expm1(period / self.mtbf)

    @property
    def best_save_steps(self) -> int:
        """Daly's higher-order estimate of the best interval, in steps.

        It is Young's sqrt(2 x stall x mtbf) for short stalls (Communications of the ACM 17, 1974, page 530); not
        shorter than SHORTEST_INTERVAL, nor so short that a save waits for the one before.
        """
        ratio = self.stall / (2 * self.mtbf)
        young = sqrt(2 * self.stall * self.mtbf)
        interval = young * (1 + sqrt(ratio) / 3 + ratio / 9) - self.stall if ratio < 1 else self.mtbf
        return ceil(max(interval, self.latency, SHORTEST_INTERVAL) / self.step)


def plan_goodput(job: Job, card: Card, step_seconds: float, mtbf_hours: float = MTBF_HOURS) -> Goodput:
    """Return the goodput of a run on such cards. mtbf_hours: between two interruptions of one card."""
    ranks = job.layout.processes
    written = disk_bytes(job)["checkpoint"] / ranks  # launch/training/saver.py deals equal shares
    pace = Pace(card, job.compute, job.item)
    return goodput_of(
        written, restored_bytes(job), pace, step_seconds, job.saves_in_background, 3600 * mtbf_hours / ranks
    )


def goodput_of(
    written: float, restored: float, pace: Pace, step_seconds: float, in_background: bool, mtbf: float
) -> Goodput:
    """Return the goodput of a run.

    written: bytes of a checkpoint that one rank writes, and later hashes. restored: bytes that it reads when the run
    continues. mtbf: seconds between two interruptions of the run.
    """
    copy, write = pace.copy(written) / PAGEABLE, written / WRITE_RATE
    restart = {
        "notice": NOTICE_SECONDS,
        "start": START_SECONDS,
        "read": written / HASH_RATE + restored / READ_RATE,
    }
    if in_background:  # the first copy of each start waits for fresh memory, about as long as a write
        return Goodput(mtbf, step_seconds, copy + written / COPY_RATE, write, restart | {FIRST_COPY: write})
    return Goodput(mtbf, step_seconds, copy + write, 0.0, restart)
