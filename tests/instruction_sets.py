"""Each set of instructions for which this processor's matrix products have kernels rounds in its own way."""

from launch.cpu.settings import Processor, this_processor

# By vendor, the variable by which MKL takes the kernels of a set: Paddle's MKL takes its slowest ones on AMD otherwise,
# whatever MKL_ENABLE_INSTRUCTIONS says (launch/cpu/settings.py).
INTEL = {"AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, "AVX512": {"MKL_ENABLE_INSTRUCTIONS": "AVX512"}}
AMD = {"AVX2": {"MKL_DEBUG_CPU_TYPE": "5"}, "AVX512": {"MKL_DEBUG_CPU_TYPE": "7"}}
COMPATIBLE = {"COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"}}

# Tests that compare numbers which round differently, with bounds that follow from the arithmetic. `make test` runs them
# with the kernels that MKL chooses, the nightly tier with those of each set.
NUMERIC = (
    "tests/training/test_chunked_loss.py",
    "tests/training/test_run_dpo.py::test_packed_pairs_are_the_same_pairs",
    "tests/distributed/test_cells.py::test_numbers_are_those_of_one_process",
    "tests/generation/test_packed.py",
    "tests/families/test_families.py",
    "tests/cpu/test_kernels.py",
    "tests/golden/test_golden.py::test_rehearsal_gives_the_stored_curve[pretrain-tiny]",
)


def sets_of(processor: Processor | None) -> dict[str, dict[str, str]]:
    """The environment for the kernels of each set."""
    if processor is None:
        return {}
    found = AMD if processor.is_amd else INTEL
    has = {"AVX2": processor.has_avx2, "AVX512": processor.has_avx512}
    return COMPATIBLE | {name: environment for name, environment in found.items() if has[name]}


HERE = sets_of(this_processor())
