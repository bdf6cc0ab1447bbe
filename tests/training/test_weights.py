"""Weights that are no numbers are found before they are evaluated, wherever they are kept."""


def test_slices_of_stage_3_are_looked_at(ranks):
    for said in ranks(2, "tests.training.weights_ranks:said_under_stage3"):
        assert said.startswith("the weights are no numbers: NaN or infinite values in weight. Nothing can be evaluated")
