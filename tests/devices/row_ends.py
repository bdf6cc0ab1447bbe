"""What FlashMask makes of the ends of samples, in NumPy."""

import numpy as np


def visible(ends: np.ndarray) -> np.ndarray:
    """bool [batch, 1, rows, columns], from ends [batch, columns]: causal; column j is masked from row ends[j] on."""
    rows = np.arange(ends.shape[1])[:, None]
    return ((rows >= rows.T) & (rows < ends[:, None, :]))[:, None]
