"""Ranks that agree on what any of them requests, for test_agreement.py."""

from types import SimpleNamespace

import paddle

from launch.training.checkpointer import Requests

COLLECTIVES = ("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "barrier")


def steps(output_dir: str) -> dict:
    """What all request at each step, where rank n gets SIGTERM in step n and nobody after that; then rank 10 ends.

    After the first step no collective can be called.
    """
    from launch.rehearsal.collectives import install

    install()
    paddle.distributed.init_parallel_env()
    rank, size = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
    requests, args = Requests(0), SimpleNamespace(process_index=rank, output_dir=output_dir)
    found = [requests._requested(args)]
    for name in COLLECTIVES:
        setattr(paddle.distributed, name, None)
    for step in range(size + 1):
        requests.received = [15] if step == rank else []
        found.append(requests._requested(args))
    if rank == 10:
        assert requests._agreement is not None
        requests._agreement.parents[0].close()
        return {"found": found, "error": ""}
    try:
        requests._requested(args)
    except RuntimeError as error:
        return {"found": found, "error": str(error)}
    raise AssertionError("rank 10 has agreed")


def unreachable() -> str:
    """Return what rank 9 says where nobody listens at the address of its parent, rank 1."""
    from launch.errors import UserError
    from launch.training import agreement

    agreement.rank, agreement.gather = lambda: 9, lambda place: [("127.0.0.1", 1)] * 10
    try:
        agreement.Agreement()
    except UserError as error:
        return str(error)
    return ""
