"""Known before anything starts: the memory that a run needs on each device, and whether it is there. No Paddle here.

job = Job.from_flags("launch/run_pretrain.py", flags, processes=8, card=CARDS["A100-80G"])
plan = plan_memory(job, CARDS["A100-80G"])
plan.fits, plan.worst.peak.name, plan.worst.peak.parts
"""
