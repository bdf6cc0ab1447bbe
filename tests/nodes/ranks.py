"""Rank functions of this folder's tests."""


def meet_and_measure(flag_of_each: bool = False, environment: dict | None = None) -> dict:
    """What a rank of a run on several nodes says, or its error. flag_of_each: every rank has another --seed."""
    import os

    import paddle

    from launch.errors import UserError
    from launch.nodes.meeting import meet_ranks
    from launch.training.device import bus_bandwidth, measure_network

    os.environ.update(environment or {})
    try:
        lines = meet_ranks({"seed": [os.environ["PADDLE_TRAINER_ID"]]} if flag_of_each else {}, on_cpu=True)
    except UserError as error:
        return {"error": str(error)}
    paddle.distributed.init_parallel_env()
    bandwidths = [bus_bandwidth(64e6, 0.01, count) for count in (2, 4, 16)]  # 64 MB in 10 ms
    return {"lines": lines + measure_network(), "bandwidths": bandwidths}


def compare_without_a_port() -> str:
    """The error of ranks of one node with different flags; rank 0 can listen nowhere by Python."""
    import os
    import socket

    from launch.errors import UserError
    from launch.nodes.meeting import compare_flags, meet_ranks

    def listen(self, *backlog) -> None:
        raise AssertionError("a port was opened")

    socket.socket.listen = listen
    flags = {"seed": [os.environ["PADDLE_TRAINER_ID"]]}
    try:
        meet_ranks(flags, on_cpu=True)
        compare_flags(flags)
    except UserError as error:
        return str(error)
    return ""
