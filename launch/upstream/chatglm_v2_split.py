"""ChatGLM2's safetensors files cannot be loaded under tensor parallel.

paddlenlp/transformers/chatglm_v2/modeling.py, _get_tensor_parallel_mappings: the functions that take a rank's part of
a fused weight join its pieces by paddle.concat, and get NumPy arrays when the file is safetensors. Corrected: this
module's concat joins arrays, too.
"""

import numpy as np
import paddle
from paddlenlp.transformers.chatglm_v2 import modeling

from launch.upstream.module_view import ModuleView


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not isinstance(modeling.paddle, ModuleView):
        modeling.paddle = ModuleView(modeling.paddle, concat=_concat)


def _concat(pieces, axis=0, name=None):
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces, axis=axis)
    return paddle.concat(pieces, axis=axis, name=name)
