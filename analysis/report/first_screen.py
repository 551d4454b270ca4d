"""The first screen: under each question, the words that every model rates highest and lowest."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import polars as pl

from analysis.measures.appended import APPENDED, strongest
from analysis.study import Study
from analysis.words import lexicons, stems
from analysis.words.matching import words_among

WORDS = 10  # At either end.
_BEHIND = 3  # Tokens behind replies.
_BARS = 48
_MOST_MODELS = 12  # Further ones are in the explorer.
_NO_WORD, _PIECE = "no word", "a piece of a word, or a rare word"


def questions(
    study: Study, prompts: Sequence[str], most: int = _MOST_MODELS
) -> list[dict[str, Any]]:
    """The first screen under each of `prompts`, for its template; of at most `most` models.

    Returns:
      For each prompt its id (`prompt`), its words (`text`), a panel for each model shown (`panels`)
      and the number of models that are not shown (`more`). A panel has: `model` (slug); `highest`
      and `lowest`, words with the extreme one first; `bars`, heights of a histogram of all rewards,
      from 0 to 1, whose ends are `least` and `most`; `noise`, the gap below which two rewards are
      the same but for the noise of computing them, or None; `top` and `bottom`, the tokens with the
      extreme rewards of all (`token`; `mark`, why it is none of the words, or ""), or None where a
      word has that reward; `behind`, of a model that was swept behind replies the tokens that raise
      most of them most (`token`, `effect_sd`, `raised`). A word has: `token`, as the tokenizer
      spells it; `reward`; `percentile`, the share of the tokens that score lower, in percent, ties
      counted half; `strength`, 0 at the model's median reward, 1 at its most extreme word of this
      end.
    """
    common = lexicons.common_words(study.options.frequency)
    words = {model: whole_words(study, model, common) for model in study.scored[:most]}
    made = []
    for prompt in prompts:
        models = study.scored_under(prompt)
        panels = [_panel(study, words[model], model, prompt) for model in models if model in words]
        about = {"prompt": prompt, "text": study.run.prompts[prompt]}
        made.append({**about, "panels": panels, "more": len(models) - len(panels)})
    return made


def whole_words(study: Study, model: str, common: Set[str]) -> pl.DataFrame:
    """token_id, token and word (in lower case) of a vocabulary's tokens that are whole words."""
    tokens = study.run.vocabulary(model).filter(~pl.col("is_special")).collect()
    return words_among(tokens, common, 2 * WORDS)


def _panel(study: Study, words: pl.DataFrame, model: str, prompt: str) -> dict[str, Any]:
    token_ids, rewards = study.run.rewards(model, prompt)
    percentiles = 100 * study.run.ranked(model, prompt).percentiles
    columns = {"token_id": token_ids, "reward": rewards, "percentile": percentiles}
    scored = pl.DataFrame(columns)
    shown = words.join(scored, on="token_id")
    middle = float(np.median(rewards))
    counts, _ = np.histogram(rewards, bins=_BARS)
    check = study.run.results[model, prompt].self_check
    highest, lowest = (_ends(shown, middle, highest=side) for side in (True, False))
    return {
        "model": model,
        "highest": highest,
        "lowest": lowest,
        "behind": _behind(study, model),
        "top": _beyond(study, model, shown, scored, rewards.max(), highest),
        "bottom": _beyond(study, model, shown, scored, rewards.min(), lowest),
        "bars": [float(count) for count in counts / max(counts.max(), 1)],
        "least": float(rewards.min()),
        "most": float(rewards.max()),
        "noise": check and check.noise,
    }


def _behind(study: Study, model: str) -> Sequence[Mapping[str, Any]]:
    table = study.tables.get(APPENDED.name)
    return [] if table is None else strongest(table.filter(model=model), _BEHIND)


def _beyond(
    study: Study,
    model: str,
    shown: pl.DataFrame,
    scored: pl.DataFrame,
    extreme: float,
    listed: Sequence[Mapping[str, Any]],
) -> dict[str, str] | None:
    """The first token with the `extreme` reward; None where a word that is `shown` has it too.

    None also where it is another spelling of a word that is `listed` at this end.
    """
    if (shown["reward"] == extreme).any():
        return None
    token_id = scored.filter(reward=extreme)["token_id"][0]
    token = study.run.vocabulary(model).filter(token_id=token_id).collect()["token"]
    words = stems.folded(pl.Series([token[0], *(word["token"] for word in listed)]))
    if words[0] in words[1:]:
        return None
    other = _PIECE if token.str.contains(stems.WORD)[0] else _NO_WORD
    return {"token": token[0], "mark": "" if stems.folded(token)[0] in shown["word"] else other}


def _ends(shown: pl.DataFrame, middle: float, highest: bool) -> list[dict[str, Any]]:
    """The first words of a ranking; each spelling of a word at its extreme, once."""
    ranked = shown.sort("reward", "token_id", descending=[highest, False])
    ranked = ranked.unique("word", keep="first", maintain_order=True)
    rows = ranked.head(min(WORDS, ranked.height // 2) or ranked.height)
    far = (pl.col("reward").cast(pl.Float64) - middle).abs()
    strength = pl.when(far.max() > 0).then(far / far.max()).otherwise(0.0)
    return rows.select("token", "reward", "percentile", strength=strength).to_dicts()
