"""How two language models differ on the same replies."""

import numpy as np

from analysis.statistics import Array


def log_ratio(log_p: Array, log_q: Array) -> Array:
    """The mixture-weighted log-ratio 1/2 (p + q) (log q - log p), element by element; float64.

    High where q gives a likely token more probability than p does, low where p does.
    *Reward Models Inherit Value Biases from Pretraining* (ICLR 2026). Natural logarithms.
    """
    log_p, log_q = np.asarray(log_p, np.float64), np.asarray(log_q, np.float64)
    return np.asarray(0.5 * (np.exp(log_p) + np.exp(log_q)) * (log_q - log_p))
