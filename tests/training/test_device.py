"""What training asks about its device: the card of its own rank, and the peak that utilisation refers to."""

import pytest

RANKS = "tests.training.device_ranks"


@pytest.mark.parametrize(("selected", "capability"), [("0", [8, 0]), ("1", [7, 0])])
def test_the_capability_is_that_of_the_ranks_own_card_before_it_is_set(ranks, selected, capability):
    [found] = ranks(1, f"{RANKS}:capabilities", environment={"FLAGS_selected_gpus": selected})
    assert found == {"gpu": capability, "gpu:0": [8, 0], "gpu:1": [7, 0], "cpu": None}


def test_what_is_told_is_of_the_card_in_use(ranks):
    assert ranks(1, f"{RANKS}:of_the_used_card") == [[[7, 0], "Tesla V100-SXM2-16GB", 700]]


def test_the_peak_of_a_known_card_is_its_datasheets(ranks):
    [found] = ranks(1, f"{RANKS}:peak", "NVIDIA L20", "bfloat16")
    assert found["flops"] == 119.5e12 and found["events"] == []
    assert found["note"].startswith("MFU: of 120 TFLOP/s, the datasheet's of NVIDIA L20; a%/b% is without and with ")


@pytest.mark.parametrize(("name", "dtype"), [("NVIDIA X9", "float16"), ("NVIDIA L20", "float32")])
def test_another_peak_is_measured_on_large_matrices_with_one_wait_and_told(ranks, name, dtype):
    """The clock says half a second."""
    [found] = ranks(1, f"{RANKS}:peak", name, dtype)
    product = f"product of 8192 x 8192 {dtype} and 8192 x 8192 {dtype}"
    assert found["events"] == [product, "wait", *[product] * 10, "wait"]
    assert found["flops"] == 10 * 2 * 8192**3 / 0.5
    assert found["note"] == (
        f"MFU: of 22.0 TFLOP/s, which 10 products of 8,192 x 8,192 {dtype} matrices reached here; no datasheet's "
        f"figure is known for {name} in {dtype}; a%/b% is without and with the operations of attention"
    )


def test_of_a_cpu_the_fastest_product_counts(ranks):
    """Other work may take its cores meanwhile."""
    [found] = ranks(1, f"{RANKS}:cpu_peak", [0.5, 0.5, 0.25, 8.0, 0.5])
    assert found == 2 * 512**3 / 0.25


def test_under_o1_products_are_in_half_precision(ranks):
    assert ranks(1, f"{RANKS}:matmul_dtypes") == [["bfloat16", "bfloat16", "float32", "float32"]]
