"""Settings of PEFT's LoraConfig that are carried over, by a name, beside r and lora_alpha."""

QUERIES = ["q_proj", "v_proj"]
KINDS = {
    "plain": {"target_modules": QUERIES},
    "all": {"target_modules": "all-linear", "init_lora_weights": "gaussian"},
    "rslora": {"target_modules": r".*\.mlp\..*_proj", "use_rslora": True},
    "patterns": {
        "target_modules": QUERIES,
        "rank_pattern": {"layers.1.self_attn.q_proj": 5},
        "alpha_pattern": {r"layers\.0\..*v_proj": 3, "q_proj": 7},
    },
    "rslora-patterns": {"target_modules": QUERIES, "use_rslora": True, "rank_pattern": {"^model.layers.1": 2}},
    "some-layers": {"target_modules": QUERIES, "layers_to_transform": [1], "exclude_modules": ["v_proj"]},
    "dora": {"target_modules": QUERIES, "use_dora": True, "use_rslora": True},
    "dora-patterns": {"target_modules": QUERIES, "use_dora": True, "alpha_pattern": {"v_proj": 3}},
    "embeddings": {"target_modules": QUERIES, "modules_to_save": ["embed_tokens", "lm_head", "norm"]},
    "tokens": {"target_modules": QUERIES, "trainable_token_indices": [7, 3]},
    "tokens-with-dora": {
        "target_modules": QUERIES,
        "use_dora": True,
        "trainable_token_indices": {"embed_tokens": [5, 2], "lm_head": [5, 2]},
    },
    "tokens-of-both": {"target_modules": QUERIES, "trainable_token_indices": {"embed_tokens": [5], "lm_head": [2, 1]}},
    "more-tokens": {"target_modules": QUERIES, "modules_to_save": ["embed_tokens", "lm_head"]},
    "orthogonal": {"target_modules": QUERIES, "init_lora_weights": "orthogonal"},
}
MERGED = {"embeddings", "tokens-of-both", "more-tokens"}  # by the import
