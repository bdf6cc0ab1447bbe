"""The hubs by name, and their clients: those of some hubs are installed when they are first named."""

import os
import sys

from launch.environment.optional_packages import require
from launch.errors import UserError
from launch.hubs.ai_studio import AIStudio
from launch.hubs.hub import Hub, log_without_credentials
from launch.hubs.hugging_face import HuggingFaceHub
from launch.hubs.model_scope import ModelScope
from launch.hubs.repository import REPOSITORY

HUBS = {hub.key: hub for hub in (HuggingFaceHub, ModelScope, AIStudio)}
SHORT = {"hf": "huggingface"}


def destination(text: str) -> tuple[str, str]:
    """Return the key of the hub and the repository of HUB:OWNER/NAME.

    Raises:
        UserError: For another text.
    """
    key, _, repository = text.partition(":")
    key = SHORT.get(key, key)
    if key not in HUBS or not REPOSITORY.fullmatch(repository):
        hubs = ", ".join((*SHORT, *HUBS))
        raise UserError(f"TO: found {text!r}, allowed: HUB:OWNER/NAME with one of the hubs {hubs}.")
    return key, repository


def open_hub(key: str, named: bool) -> Hub:
    """Return the hub. named: by the user, now; the packages of a hub are installed only then."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars are for terminals; read when tqdm is imported
    if key == ModelScope.key and named:
        require("modelscope-hub", "hubs.lock")
    log_without_credentials()
    return HUBS[key]()
