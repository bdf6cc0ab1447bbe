"""A batch of rows through paddlenlp's generate(), each with its own temperature, seed and length."""

import paddle
from paddlenlp.generation import LogitsProcessor

from launch.generation.generate import Decoding, generate
from launch.prediction.predictor import Predictor
from launch.serving.batching.request import Row
from launch.serving.batching.sampling import draw, random_of


def answer_rows(predictor: Predictor, rows: list[Row]) -> None:
    """Answer rows together until all are done; one that has tokens already goes on behind them. Rows of a model with a
    prefix must be of one length."""
    decoding = Decoding(max_new_tokens=max(row.max_tokens - len(row.tokens) for row in rows))
    choice = Choice(rows, predictor.eos)
    prompts = [row.prompt + row.tokens for row in rows]
    generate(predictor.model, predictor.family, prompts, decoding, predictor.eos, predictor.known_ids, [choice])


class Choice(LogitsProcessor):
    """Chooses the next token of every row, tells the row, and leaves greedy search nothing else to take.

    A row that is done gets eos, so that generate() ends when all are.
    """

    def __init__(self, rows: list[Row], eos: int):
        self.rows = rows
        self.eos = eos
        for row in rows:
            row.random = row.random or random_of(row.options, row.number)

    def __call__(self, input_ids: paddle.Tensor, logits: paddle.Tensor) -> paddle.Tensor:
        """logits: [rows, vocabulary]"""
        likely = paddle.argmax(logits, axis=-1).tolist()
        tokens = [self._next(number, token, logits) for number, token in enumerate(likely)]
        return paddle.nn.functional.one_hot(paddle.to_tensor(tokens), logits.shape[-1])

    def _next(self, number: int, likely: int, logits: paddle.Tensor) -> int:
        row = self.rows[number]
        if row.done:
            return self.eos
        token = likely
        if row.options.temperature > 0:
            token = draw(logits[number].astype("float32").numpy(), row.options, row.random)
        row.put(token, self.eos)
        return token
