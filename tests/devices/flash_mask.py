"""FlashMask on a CPU, by its definition in paddle.nn.functional.flashmask_attention. For ranks that have Paddle."""

import paddle

from tests.devices.row_ends import visible


def flashmask_attention(query, key, value, startend_row_indices, causal: bool):
    """[batch, length, heads, size] each; startend_row_indices int32 [batch, 1, length, 1]."""
    assert causal and startend_row_indices.dtype == paddle.int32
    assert startend_row_indices.shape == [query.shape[0], 1, query.shape[1], 1]
    mask = paddle.to_tensor(visible(startend_row_indices.numpy()[:, 0, :, 0]))
    return paddle.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
