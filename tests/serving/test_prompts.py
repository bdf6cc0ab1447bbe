"""What cannot fit into a model's positions, however it is encoded, is refused before it is."""


def test_what_cannot_fit_is_refused_unencoded(ranks):
    [found] = ranks(1, "tests.serving.prompts_ranks:refused")
    room = "the model has 10 positions for tokens of 5 characters at most"
    last = "messages: the last one is of the role 'assistant', expected 'user': it is what is answered"
    assert found == {
        "said": [
            [400, f"prompt: found 51 characters, {room}", "prompt"],
            [400, f"messages: found 51 characters, {room}", "messages"],
            [400, last, "messages"],
        ],
        "encoded": 0,
    }
