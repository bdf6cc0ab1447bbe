"""What counts for the loss of two turns, answered by "4" and "six", in each chat template that we ship."""

COUNTED = {
    "baichuan": "4</s>six</s>",
    "chatglm": "4six</s>",
    "chatglm_v2": "4\n\nsix\n\n</s>",
    "ernie4_5": "4<|end_of_sentence|>six<|end_of_sentence|></s>",
    "llama": " 4 </s> six </s>",
    "llama3": "4<|eot_id|>six<|eot_id|></s>",
    "mistral": " 4</s> six</s>",
    "plain": " 4\n\n six\n\n</s>",
    "qwen2": "4<|im_end|>\nsix<|im_end|>\n</s>",
    "qwen3": "4<|im_end|>\nsix<|im_end|>\n</s>",
    "qwen3_thinking": "<think>\n\n</think>\n\n4<|im_end|>\n<think>\n\n</think>\n\nsix<|im_end|>\n</s>",
}
