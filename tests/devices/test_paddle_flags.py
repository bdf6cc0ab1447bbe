"""The flags of --deterministic: set, refused where the environment says otherwise, checked in Paddle."""

import pytest

from launch.devices.paddle_flags import (
    PADDLE_FLAGS,
    VARIABLES,
    check_switches,
    set_switches,
)
from launch.errors import UserError


def test_deterministic_switches_are_set_and_told_or_refused():
    environment = {"NCCL_ALGO": "Ring", "HOME": "/root"}
    line = set_switches(environment)
    assert environment == {"HOME": "/root"} | PADDLE_FLAGS | VARIABLES
    assert line.startswith("deterministic: FLAGS_cudnn_deterministic=1, ") and "NCCL_ALGO=Ring" in line
    environment = {"NCCL_ALGO": "Tree", "FLAGS_embedding_deterministic": "0"}
    expected = (
        "found FLAGS_embedding_deterministic=0, NCCL_ALGO=Tree in the environment, expected "
        "FLAGS_embedding_deterministic=1, NCCL_ALGO=Ring"
    )
    with pytest.raises(UserError, match=expected):
        set_switches(environment)
    assert environment == {"NCCL_ALGO": "Tree", "FLAGS_embedding_deterministic": "0"}
    taken = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1, "FLAGS_cudnn_exhaustive_search": 0}
    check_switches(taken.get)
    with pytest.raises(UserError, match="Paddle did not take FLAGS_cudnn_deterministic, FLAGS_cudnn_exhaustive_search"):
        check_switches((taken | {"FLAGS_cudnn_deterministic": False, "FLAGS_cudnn_exhaustive_search": 1}).get)
