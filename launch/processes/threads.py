"""How the ranks of one machine share its cores."""

from launch.cpu.settings import available_cores


def threads_per_rank(ranks: int) -> str:
    """The value of OMP_NUM_THREADS for each of so many ranks on a CPU."""
    return str(max(1, available_cores() // ranks))
