"""Tables of docs/low-memory.md, for any model and cards: what to change in which order, and what sharding costs.

python -m launch.plan.guide measures baichuan-13b --gpus 2 --gpu_memory_gb 24
python -m launch.plan.guide --write docs/low-memory.md      # all tables in that page anew
"""
