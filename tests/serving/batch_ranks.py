"""Choices in a batch, for test_batch.py."""

EOS = 2


def chosen() -> dict:
    """What greedy search is left with in three steps, and what the rows were told: the first row is cancelled, the
    second may have one token, the third ends itself, the fourth goes on until its logits are no numbers."""
    import time

    import paddle

    from launch.serving.models import Choice, Chooser
    from launch.serving.request import Options, Row

    told, late = [[] for _ in range(4)], time.monotonic() + 60
    rows = [
        Row(("m",), [1], Options(temperature=0), 1 if number == 1 else 9, number, late, told[number].append)
        for number in range(4)
    ]
    rows[0].cancel()
    choice = Choice(rows, Chooser(EOS, None))
    steps = []
    for step, likely in enumerate(([5, 6, EOS, 7], [5, 6, 5, 4], [5, 6, 5, 4])):
        logits = paddle.nn.functional.one_hot(paddle.to_tensor(likely), 8)
        logits[3, 5] = float("nan") if step == 2 else 0.0
        steps.append(paddle.argmax(choice(None, logits), axis=-1).tolist())
    return {"steps": steps, "told": told}
