"""What a sweep prints as soon as a prompt is done: the tokens with the most extreme rewards."""

import sys

import polars as pl
from tqdm import tqdm

_SHOWN = 5  # tokens per end


def show(model: str, prompt: str, scores: pl.DataFrame) -> None:
    """Prints `extremes` on standard error, above the progress bar."""
    tqdm.write(extremes(model, prompt, scores), file=sys.stderr)


def extremes(model: str, prompt: str, scores: pl.DataFrame) -> str:
    """The five highest and five lowest tokens of a model under a prompt, as three lines.

    Args:
      model: slug.
      prompt: prompt id.
      scores: columns token_id, token and reward, one row per token. Spaces, line ends and other
        invisible characters are shown as marks. Equal rewards are ordered by token id.
    """
    title = f"{model}, prompt {prompt!r}:"
    highest = scores.sort("reward", "token_id", descending=[True, False]).head(_SHOWN)
    lowest = scores.sort("reward", "token_id").head(_SHOWN)
    return "\n".join([title, f"  highest  {_row(highest)}", f"  lowest   {_row(lowest)}"])


def _row(scores: pl.DataFrame) -> str:
    from analysis import display  # here: a sweep need not wait for all of the analysis

    rows = scores.select("token", "reward").iter_rows()
    return "   ".join(f"{display.plain(token, limit=24)} {reward:.2f}" for token, reward in rows)
