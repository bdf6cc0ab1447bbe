"""Log-probabilities in replies: as the OpenAI API has them in completions and in chats, and by ids as vLLM.

`most` is how many of the most likely tokens are shown in each place.
"""

from collections.abc import Callable, Sequence

from launch.serving.answer import PlacedLikelihood
from launch.serving.request import TokenName

Names = Callable[[int], TokenName]


def of_completion(likelihoods: Sequence[PlacedLikelihood], most: int, names: Names) -> dict:
    """Return lists with an entry for each token.

    A place shows its most likely tokens and its own; the first of a prompt has nothing before it.

    Args:
        likelihoods: The likelihoods.
        most: Tokens of a place, at most.
        names: Of tokens.
    """
    return {
        "tokens": [names(one.likelihood.token).text for one in likelihoods],
        "token_logprobs": [one.likelihood.value for one in likelihoods],
        "top_logprobs": [
            None if one.likelihood.value is None else {names(token).text: value for token, value in _shown(one, most)}
            for one in likelihoods
        ],
        "text_offset": [one.offset for one in likelihoods],
    }


def of_chat(likelihoods: Sequence[PlacedLikelihood], most: int, names: Names) -> dict:
    """Return the log-probabilities of a chat in the API's form."""

    def entry(token: int, value: float | None) -> dict:
        name = names(token)
        return {"token": name.text, "logprob": value, "bytes": None if name.bytes is None else list(name.bytes)}

    content = [
        entry(one.likelihood.token, one.likelihood.value)
        | {"top_logprobs": [entry(*each) for each in one.likelihood.top[:most]]}
        for one in likelihoods
    ]
    return {"content": content, "refusal": None}


def by_ids(likelihoods: Sequence[PlacedLikelihood], most: int, names: Names) -> list[dict | None]:
    """Return for each token of a prompt {id: its logprob, rank and text}, of the most likely ones and its own."""
    return [None if one.likelihood.value is None else _by_id(one, most, names) for one in likelihoods]


def _by_id(one: PlacedLikelihood, most: int, names: Names) -> dict:
    ranks = {token: rank for rank, (token, _) in enumerate(one.likelihood.top, 1)}
    ranks[one.likelihood.token] = one.likelihood.rank
    return {
        str(token): {"logprob": value, "rank": ranks[token], "decoded_token": names(token).text}
        for token, value in _shown(one, most)
    }


def _shown(one: PlacedLikelihood, most: int) -> list[tuple[int, float | None]]:
    """Return the most likely tokens, and the actual one."""
    own = (one.likelihood.token, one.likelihood.value)
    top = one.likelihood.top[:most]
    return [*top] if own[0] in dict(top) else [*top, own]
