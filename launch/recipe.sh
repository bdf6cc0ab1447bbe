# Sourced by every recipe, which then states its need (GPUS=8 GPU_MEMORY_GB=80, or PROCESSES=2 on a CPU) and calls
# `run SCRIPT FLAGS`. Variables of the same names in the environment are the user's wishes. What happens then, chosen
# by ACTION=run|print|rehearse, is launch/recipe.py's business.
set -eu

wished_gpus=${GPUS:-}
wished_gpu_memory_gb=${GPU_MEMORY_GB:-}
wished_processes=${PROCESSES:-}
GPUS=0 GPU_MEMORY_GB=0 PROCESSES=1

run() {
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    python=$root/.venv/bin/python
    if [ ! -x "$python" ]; then
        python=$(sh "$root/launch/environment/find_python.sh" plain) || exit 2
    fi
    exec env GPUS="$wished_gpus" GPU_MEMORY_GB="$wished_gpu_memory_gb" PROCESSES="$wished_processes" \
        "$python" "$root/launch/recipe.py" \
        --recipe "$0" --gpus "$GPUS" --gpu_memory_gb "$GPU_MEMORY_GB" --processes "$PROCESSES" "$@"
}
