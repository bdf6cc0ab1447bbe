"""What upstream lacks on a CPU, for which there are bridges: one that is no longer needed can go."""

import pytest

GAPS = {
    "all_reduce_on_calc_stream": "ProcessGroupGLOO does not support all_reduce with sync_op and use_calc_stream flag",
    "reduce_on_calc_stream": "ProcessGroupGLOO does not support reduce with sync_op and use_calc_stream flag",
    "broadcast_on_calc_stream": "ProcessGroupGLOO does not support broadcast with sync_op and use_calc_stream flag",
    "all_gather_on_calc_stream": "ProcessGroupGLOO does not support all_gather with sync_op and use_calc_stream flag",
    "all_gather_into_tensor_on_calc_stream": "does not support all_gather with sync_op and use_calc_stream flag",
    "reduce_scatter_tensor": "ProcessGroupGLOO does not support reduce_scatter with sync_op",
    "reduce_scatter_tensor_on_calc_stream": "does not support reduce_scatter with sync_op and use_calc_stream flag",
    "send_partial_on_calc_stream": "GLOO does not support send with sync_op and use_calc_stream",
    "recv_partial_on_calc_stream": "GLOO does not support recv with sync_op and use_calc_stream",
    "all_gather_partial_on_calc_stream": "GLOO does not support all_gather with sync_op and use_calc_stream",
    "c_identity": "Do not support c_identity for cpu kernel now",
    "c_split": "Do not support c_split for cpu kernel now",
    "c_concat": "Do not support c_concat for cpu kernel now",
    "c_softmax_with_cross_entropy": "Do not support c_softmax_with_cross_entropy for cpu kernel now",
    "sharding": "AssertionError: group_sharded_parallel only support gpu, xpu and custom_device now",
    "stage 2": "AssertionError: Only GPU and XPU and CustomDevice is supported now",
    "stage 3": "AssertionError: Only support CUDA / XPU / CustomDevice.",
    "clip, device cpu": "IndexError: list index out of range",
    "clip, device cpu:0": "ValueError: No available device found.",
    "device number": "AttributeError: 'ParallelEnv' object has no attribute '_device_id'",
}


@pytest.mark.nightly
def test_what_upstream_lacks(ranks):
    for messages in ranks(2, "tests.rehearsal.gaps_ranks:messages"):
        assert messages.keys() == GAPS.keys()
        for name, told in GAPS.items():
            assert told in messages[name], (name, messages[name])
