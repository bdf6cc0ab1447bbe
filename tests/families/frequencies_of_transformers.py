"""[inverse frequencies, attention factor] by transformers, for test_rotary_scaling.py.

stdin: [[values of a LlamaConfig, length of the sequence], ...]; stdout: the results as JSON.
"""

import json
import sys

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

found = []
for values, length in json.load(sys.stdin):
    config = LlamaConfig(**values)
    compute = ROPE_INIT_FUNCTIONS[config.rope_scaling["rope_type"]]
    frequencies, factor = compute(config, "cpu", seq_len=length)
    found.append([frequencies.tolist(), factor])
print(json.dumps(found))
