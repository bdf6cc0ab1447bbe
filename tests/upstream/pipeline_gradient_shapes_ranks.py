"""A first pipeline stage whose messages go nowhere, for test_pipeline_gradient_shapes.py."""

import paddle
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication

from launch.upstream import pipeline_gradient_shapes


def expected_gradients(corrected: bool) -> list[list[int]]:
    """Activations of 5, 3 and 4 tokens go out, and in between one of 9 for evaluation; the shapes in which the stage
    then expects gradients, in the order of 1F1B with two micro batches on their way."""
    if corrected:
        pipeline_gradient_shapes.correct()
        pipeline_gradient_shapes.correct()
    shapes = []

    def message(*, recv_next: bool, send_recv_meta, **_) -> tuple:
        if recv_next:
            shapes.append(list(send_recv_meta.send_shape_message))
        return None, None, None

    p2p_communication._p2p_helper = message
    helper = p2p_communication.P2pHelper(use_cache=False)
    helper._send_meta = lambda tensor, *_, **__: helper._send_recv_meta.set_send_message(tensor)

    def send(tokens: int) -> None:
        helper.send_forward(paddle.ones([1, tokens, 2]), False)

    send(5)
    send(3)
    helper.recv_backward(False)
    send(4)
    helper.recv_backward(False)
    with paddle.no_grad():
        send(9)
    helper.recv_backward(False)
    return shapes
