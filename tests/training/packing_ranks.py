"""Tiny models of all families on packed rows, for test_packing.py."""

import numpy as np
import paddle

from data_tools.dialogues.encoding import IGNORED, Encoded
from data_tools.dialogues.samples import DialogueDataset, PackedDialogues
from launch.training.batches import PaddingCollator
from tests.families.family_ranks import VOCABULARY, build, tiny

LENGTHS, PROMPT, ROOM = (9, 6, 12, 5, 7, 8), 3, 20  # rows of 19 and 20 of them, and one that is not full


def packed_all(names: list[str]) -> dict[str, dict]:
    return {name: packed(name) for name in names}


def packed(name: str, **changes) -> dict:
    """{"apart": the largest difference of a token's loss in a packed row to that of its dialogue alone, "leaked": the
    largest difference that another token in one dialogue makes to the others of its row, "changed": to itself,
    "tokens": counted ones}. changes: of the configuration."""
    model = build(name, tiny(name, seq_length=ROOM, **changes))
    model.eval()
    dialogues = _dialogues()
    rows = PackedDialogues(dialogues, ROOM)
    together = token_losses(model, [rows[i] for i in range(len(rows))], packed=True)
    alone = [token_losses(model, [dialogues[i]], packed=False) for i in range(len(dialogues))]
    in_rows = [np.concatenate([alone[number][0] for number in row]) for row in rows._rows]
    differences = [np.abs(row[: len(one)] - one).max() for row, one in zip(together, in_rows, strict=True)]

    changed_row = rows[0]
    size = dialogues.tokens[rows._rows[0][0]]
    changed_row["input_ids"][1] = (changed_row["input_ids"][1] + 1) % VOCABULARY
    again = token_losses(model, [changed_row], packed=True)[0]
    before = token_losses(model, [rows[0]], packed=True)[0]
    return {
        "apart": float(max(differences)),
        "leaked": float(np.abs(again - before)[size:].max()),
        "changed": float(np.abs(again - before)[:size].max()),
        "tokens": int(sum((row != 0).sum() for row in together)),
    }


def _dialogues() -> DialogueDataset:
    random = np.random.default_rng(0)
    ids = [random.integers(3, VOCABULARY, length + 1).tolist() for length in LENGTHS]
    return DialogueDataset(Encoded(one, [IGNORED] * PROMPT + one[PROMPT:]) for one in ids)


def token_losses(model, samples: list[dict], packed: bool) -> np.ndarray:
    """float32 [samples, length]: of each position, 0 where it does not count."""
    batch = {key: paddle.to_tensor(value) for key, value in PaddingCollator(0, None, packed)(samples).items()}
    labels = batch.pop("labels")
    with paddle.no_grad():
        logits = model(**batch, return_dict=True).logits
        entropy = paddle.nn.CrossEntropyLoss(reduction="none", ignore_index=IGNORED)
        return entropy(logits, labels.unsqueeze(-1)).squeeze(-1).numpy()
