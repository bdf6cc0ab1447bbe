"""lm-eval, set so that it reaches no network, and that the templates of a data folder call nothing.

Its log and its progress bars are left out: what an evaluation does is printed here.
Source: https://github.com/EleutherAI/lm-evaluation-harness, version 0.4.13 (requirements/evaluate.lock, which
launch.environment.optional_packages installs before this is imported).
"""

# pyright: reportMissingImports=false

import logging
import os
import signal
from functools import lru_cache, partial
from pathlib import Path

import datasets.config
import evaluate.config
import huggingface_hub.constants
import lm_eval.api.task
import lm_eval.tasks
from jinja2 import Template
from jinja2.sandbox import SandboxedEnvironment
from lm_eval import utils

SHIPPED = Path(lm_eval.tasks.__file__).resolve().parent  # its definitions of tasks

huggingface_hub.constants.HF_HUB_OFFLINE = True
datasets.config.HF_HUB_OFFLINE = True
evaluate.config.HF_EVALUATE_OFFLINE = True
os.environ["DISABLE_MULTIPROC"] = "1"  # of resamples for standard errors: a process with Paddle's threads never forks
logging.getLogger("lm_eval").setLevel(logging.ERROR)
datasets.utils.disable_progress_bars()
lm_eval.api.task.tqdm = partial(lm_eval.api.task.tqdm, disable=True)


TEMPLATE_SECONDS = 10.0  # of processors, for one text


class _BoundedTemplate(Template):
    """A template that raises TimeoutError where it computes for too long."""

    def render(self, *args, **named):
        before = signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, TEMPLATE_SECONDS)
        try:
            return super().render(*args, **named)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


def _stop(*_) -> None:
    raise TimeoutError(f"a template computes for more than {TEMPLATE_SECONDS:g} s")


class _Templates(SandboxedEnvironment):
    """Each template is compiled once."""

    template_class = _BoundedTemplate

    @lru_cache(maxsize=1024)  # noqa: B019 - there is one, for as long as the process lives
    def from_string(self, source, *more):
        return super().from_string(source, *more)


_stock = utils.env
utils.env = _Templates(loader=_stock.loader, undefined=_stock.undefined, keep_trailing_newline=True)
utils.env.filters.update(_stock.filters)
