"""What a policy trained on each reward would say, exactly, for replies whose probability is known.

No table of the paper: it suggests that reward models shape policies, and measures the rewards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import polars as pl

from analysis.blocks import (
    MODEL,
    PROMPT,
    Block,
    Column,
    Finding,
    Folded,
    Heading,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.chapters.items import FEW
from analysis.chapters.items_agreement import file_name
from analysis.figures import climbs
from analysis.measures.matched_words import trims
from analysis.measures.policies import (
    BEST_OF_N,
    MASSES,
    MOVERS,
    OPTIMAL,
    POLICIES,
    SHOWN_KL,
    masses,
    movers,
    policies_of,
)
from analysis.measures.reference_policy import (
    KLS,
    VOCABULARY,
    Replies,
    lists,
    vocabularies,
    without_reference,
)
from analysis.sentences import listed
from analysis.study import Study, Table, required, table
from analysis.words.kinds import kinds

_Known: TypeAlias = Callable[[], list[Replies]]

_LISTED_KLS = (SHOWN_KL, 4.0)
_SHOWN_DRAWS = (1, 4, 16, 64, 256, 1024, 65536, 1_000_000)


def tables(study: Study) -> Iterator[Table]:
    """policies.csv, policy_replies.csv and policy_words.csv."""
    known = functools.cache(lambda: list(known_replies(study)))
    yield table("policies", make=partial(_policies, study, known))
    yield table("policy_replies", make=partial(_movers, study, known))
    yield table("policy_words", make=partial(_masses, study, known))


def known_replies(study: Study) -> Iterator[Replies]:
    """Vocabularies, then lists, that a language model and reward models both read."""
    yield from vocabularies(study.run, study.models)
    yield from lists(study.run, study.models)


def reason(study: Study, known: Sequence[Replies]) -> str:
    """Why no exact policy can be computed, and what is needed."""
    if known:
        return "Every reward model gives all replies one reward."
    if not study.run.logprobs and not study.run.item_logprobs:
        return "No language model’s log-probabilities are in the run: no reference policy."
    return (
        "No reward model was scored under a prompt of a language model that has its tokenizer: "
        "a reference policy needs the same vocabulary and the same prompt."
    )


def _policies(study: Study, known: _Known) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=POLICIES), *(policies_of(each) for each in known())]
    return required(pl.concat(frames), reason(study, known()))


def _movers(study: Study, known: _Known) -> pl.DataFrame:
    frames = [movers(each, _LISTED_KLS, study.settings.top) for each in known()]
    return required(pl.concat([pl.DataFrame(schema=MOVERS), *frames]), reason(study, known()))


def _masses(study: Study, known: _Known) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=MASSES)]
    for each in known():
        if each.of == VOCABULARY:
            frames.append(masses(each, _LISTED_KLS, kinds_of(study, each)))
    return required(pl.concat(frames), reason(study, known()))


def kinds_of(study: Study, replies: Replies) -> pl.DataFrame:
    """The kinds of words of a vocabulary, as `words.kinds` gives them."""
    run, options = study.run, study.options
    vocabulary = run.vocabulary(replies.models[0]).select("token_id", "token").collect()
    result = run.results[replies.models[0], replies.prompt]
    trim = trims(result, options.match_trim)
    return kinds(vocabulary, options.afinn, options.identity, trim)


def section(study: Study) -> Section:
    """Curves of gain against KL, then what is said at one KL."""
    made = study.tables
    blocks: list[Block] = notes([made.reason("policies")])
    every = made.get("policies")
    if every is not None:
        blocks += _covered(study)
        for of, prompt in drawn(every):
            blocks += _of_prompt(study, of, prompt)
        blocks += _tables(study)
    return Section(
        id="policies",
        title="What a trained policy would say",
        label="Trained policies",
        lead="A language model gives every one-token reply a probability, and a reward model gives "
        "it a reward. So the optimum of training with a KL penalty, π ∝ p·exp(r/β), and the best "
        "of n samples are known exactly, without training and without sampling.",
        blocks=blocks,
        caveats=(
            "A reply is one token, or one item of a list: longer replies of a trained policy may "
            "behave otherwise.",
            "Training may not reach this optimum, and a language model that was trained further "
            "starts from another reference.",
        ),
        findings=findings(every, study.names),
    )


def _covered(study: Study) -> list[Block]:
    left_out = without_reference(study.run, study.models)
    if not left_out or not study.run.logprobs:
        return []
    names = listed([study.names[model] for model in left_out])
    text = (
        f"Without a language model of their tokenizer, and left out over the vocabulary: {names}."
    )
    return notes([text])


def _of_prompt(study: Study, of: str, prompt: str) -> list[Block]:
    own = study.tables["policies"].filter(of=of, prompt=prompt)
    optimal, best = (own.filter(method=method) for method in (OPTIMAL, BEST_OF_N))
    stem = f"policies_{file_name(of)}_{prompt}"
    caption = (
        "Rise of the mean reward, in standard deviations under the language model, against the KL "
        "from it. Lines: the optimal policy, which nothing can be above. Points: best of n, for "
        "n = 2, 4, 8, … to a million."
    )
    blocks: list[Block] = [
        Heading(place_of(of, prompt), f"reference policy: {own['reference'][0]}"),
        Picture(stem, caption, partial(climbs.gains, optimal, best, study.names)),
    ]
    moved = study.tables.get("policy_replies")
    if moved is not None:
        shown = moved.filter(of=of, prompt=prompt, kl=SHOWN_KL)
        shown = shown.filter(pl.col("rank") <= study.settings.figure_top)
        title = f"Replies that gain and lose most at a KL of {SHOWN_KL:g} nat"
        inside = rows(shown, _MOVERS, "policy_replies.csv", unfolded=True)
        if inside:
            blocks.append(Folded(title, inside))
    return blocks


def drawn(rows_of: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Replies and prompt of each figure: vocabularies, and lists under up to `FEW` prompts."""
    pairs = rows_of.select("of", "prompt").unique(maintain_order=True)
    counts = dict(pairs.group_by("of").len().iter_rows())
    for of, prompt in pairs.iter_rows():
        if of == VOCABULARY or counts[of] <= FEW:
            yield of, prompt


def place_of(of: str, prompt: str) -> str:
    """Prompt and replies in words, such as "Under “best”, over the list “words”"."""
    where = "the vocabulary" if of == VOCABULARY else f"the list “{of}”"
    return f"Under “{prompt}”, over {where}"


def _tables(study: Study) -> list[Block]:
    every = study.tables["policies"]
    shown = every.filter(
        (pl.col("method") == OPTIMAL) & pl.col("kl").round(6).is_in([0.5, 1.0, 2.0, 4.0])
        | (pl.col("method") == BEST_OF_N) & pl.col("n").is_in(_SHOWN_DRAWS)
    )
    words = study.tables.get("policy_words")
    blocks = rows(shown, _POLICIES, "policies.csv", "Policies at a few KLs")
    blocks += rows(words, _WORDS, "policy_words.csv", "Probability of kinds of words")
    how = (
        "entropy is in nats; replies is its exponential, the effective number of different "
        "replies. β has the unit of the reward. bound is log n − (n − 1)/n, which the KL of best "
        f"of n cannot exceed. The file has every KL from {KLS[0]:g} to {KLS[-1]:g}, and the limit "
        "β = 0, where only the replies of the highest reward are left."
    )
    return [*blocks, Text(how, "how")]


def findings(every: pl.DataFrame | None, names: Mapping[str, str]) -> list[Finding]:
    """How few replies are left at a KL of one nat, where a policy has lost half of them."""
    if every is None:
        return []
    found = []
    over = every.filter(of=VOCABULARY)
    for (prompt,), own in over.group_by("prompt", maintain_order=True):
        start = own.filter(method=BEST_OF_N, n=1).select("model", before="replies")
        at = own.filter(pl.col("method") == OPTIMAL, (pl.col("kl") - SHOWN_KL).abs() < 1e-6)
        both = at.join(start, on="model", how="inner", validate="1:1").sort("replies", "model")
        narrowed = both.filter(pl.col("replies") < pl.col("before") / 2)
        if narrowed.height == 0:
            continue
        first = narrowed.row(0, named=True)
        text = (
            f"Under “{prompt}”, a policy trained to a KL of {SHOWN_KL:g} nat would spread over "
            f"less than half as many replies as {first['reference']} in {narrowed.height} of "
            f"{both.height} models; fewest with {names[first['model']]}: "
            f"{first['replies']:.0f} instead of {first['before']:.0f}."
        )
        found.append(Finding(text=text, picture=f"policies_{VOCABULARY}_{prompt}"))
    return found


_MOVERS: tuple[Column, ...] = (
    MODEL,
    ("end", "end", "text"),
    ("rank", "rank", "count"),
    ("reply", "reply", "token"),
    ("p", "reference", "share"),
    ("policy", "policy", "share"),
    ("change", "change", "share"),
)
_POLICIES: tuple[Column, ...] = (
    ("of", "replies of", "text"),
    PROMPT,
    MODEL,
    ("method", "policy", "text"),
    ("n", "n", "count"),
    ("beta", "β", "number"),
    ("kl", "KL, nats", "fixed"),
    ("bound", "bound", "fixed"),
    ("reward", "mean reward", "number"),
    ("gain", "gain, sd", "fixed"),
    ("entropy", "entropy", "fixed"),
    ("replies", "replies", "number"),
    ("top", "most probable", "token"),
    ("top_share", "its share", "share"),
)
_WORDS: tuple[Column, ...] = (
    PROMPT,
    MODEL,
    ("kl", "KL, nats", "number"),
    ("list", "list", "text"),
    ("words", "words", "text"),
    ("tokens", "tokens", "count"),
    ("p", "reference", "share"),
    ("policy", "policy", "share"),
    ("ratio", "times", "number"),
)
