"""What all ranks of a run know together."""

import paddle


def gather(value) -> list:
    """The value of every rank, by rank, on every rank."""
    if paddle.distributed.get_world_size() == 1:
        return [value]
    values: list = []
    paddle.distributed.all_gather_object(values, value)
    return values
