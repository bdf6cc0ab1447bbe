"""What the device of a run can do: one Switch for each feature, asked by the checks, the plan and the run."""

from launch.switches.flash_attention import FLASH_ATTENTION, FLASH_ATTENTION_3, FLASH_MASK
from launch.switches.fused_rms_norm import FUSED_RMS_NORM
from launch.switches.fused_rope import FUSED_ROPE
from launch.switches.tensor_parallel_overlap import OVERLAP

# In the order of their lines.
SWITCHES = (FLASH_ATTENTION, FLASH_ATTENTION_3, FLASH_MASK, FUSED_RMS_NORM, FUSED_ROPE, OVERLAP)
