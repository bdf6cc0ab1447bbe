"""Reward models: pairs of responses to a prompt, of which the chosen one shall get the higher score."""

from dataclasses import replace

from launch.methods.method import ArgumentFiles
from launch.methods.preference_flags import rows_of
from launch.methods.preferences import PREFERENCES, PreferenceDataArguments

REWARDS = replace(
    PREFERENCES,  # which reads the same rows
    name="rewards",
    title="reward model",
    script="run_reward",
    training="launch.training.reward_tuning:RewardTuning",
    arguments=(PreferenceDataArguments,),
    metrics=("loss", "accuracy", "rewards_chosen", "rewards_rejected", "rewards_margin"),
    rows_per_sample=lambda values: rows_of(None),
    reward_model=True,
    files=(ArgumentFiles("a reward model", frozenset({"max_seq_len"})),),
    fits={},
)
