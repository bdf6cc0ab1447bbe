"""Where the weights of a name come from."""

DOWNLOAD = "tests.training.model_ranks:download"


def test_rank_zero_downloads_before_the_others_look(ranks, tmp_path):
    first, second = ranks(2, DOWNLOAD, str(tmp_path), False)
    assert first["found"] == second["found"] == str(tmp_path)
    assert first["there_before"] == [False] and second["there_before"] == [True]


def test_a_download_that_fails_is_told_on_every_rank(ranks, tmp_path):
    first, second = ranks(2, DOWNLOAD, str(tmp_path), True)
    assert first["found"] == second["found"]
    assert first["found"].startswith("--model_name_or_path: 'facebook/llama-7b' cannot be loaded: Connection refused.")
    assert second["there_before"] == []  # it did not try
