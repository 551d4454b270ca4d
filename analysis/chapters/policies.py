"""What a policy trained on each reward would say, exactly, for replies whose probability is known.

No table of the paper: it suggests that reward models shape policies, and measures the rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import (
    MODEL,
    PROMPT,
    Block,
    Column,
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
    LIST,
    Replies,
    lists,
    vocabularies,
    without_reference,
)
from analysis.sentences import listed
from analysis.study import Study, Table, required, table
from analysis.words.kinds import kinds

_REPLIES = "replies with a reference policy"

_LISTED_KLS = (SHOWN_KL, 4.0)
_SHOWN_DRAWS = (1, 4, 16, 64, 256, 1024, 65536, 1_000_000)


def tables(study: Study) -> Iterator[Table]:
    """policies.csv, policy_replies.csv and policy_words.csv."""
    yield table("policies", make=partial(_policies, study))
    yield table("policy_replies", make=partial(_movers, study))
    yield table("policy_words", make=partial(_masses, study))


def known_replies(study: Study) -> list[Replies]:
    """Vocabularies, then lists, that a language model and reward models both read; read once."""
    if _REPLIES not in study.shared:
        both = (vocabularies(study.run, study.models), lists(study.run, study.models))
        study.shared[_REPLIES] = [replies for each in both for replies in each]
    found: list[Replies] = study.shared[_REPLIES]
    return found


def reason(study: Study) -> str:
    """Why no exact policy can be computed, and what is needed."""
    if not study.run.logprobs and not study.run.item_logprobs:
        return "No language model’s log-probabilities are in the run: no reference policy."
    return (
        "No reward model that tells replies apart was scored under a prompt of a language model "
        "with its tokenizer: a reference policy needs the same vocabulary and the same prompt."
    )


def _policies(study: Study) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=POLICIES), *(policies_of(each) for each in known_replies(study))]
    return required(pl.concat(frames), reason(study))


def _movers(study: Study) -> pl.DataFrame:
    frames = [movers(each, _LISTED_KLS, study.settings.top) for each in known_replies(study)]
    return required(pl.concat([pl.DataFrame(schema=MOVERS), *frames]), reason(study))


def _masses(study: Study) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=MASSES)]
    for each in known_replies(study):
        if each.is_vocabulary:
            frames.append(masses(each, _LISTED_KLS, kinds_of(study, each)))
    return required(pl.concat(frames), reason(study))


def kinds_of(study: Study, replies: Replies) -> pl.DataFrame:
    """The kinds of words of a vocabulary, as `words.kinds` gives them."""
    run, options = study.run, study.options
    vocabulary = run.vocabulary(replies.models[0]).select("token_id", "token").collect()
    result = run.results[replies.models[0], replies.prompt]
    trim = trims(result, options.match_trim)
    return kinds(vocabulary, options.afinn, options.identity, options.categories, trim)


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
        lead="A language model says how probable it is that a reply begins with each token, and a "
        "reward model gives the token a reward. So the optimum of training with a KL penalty, "
        "π ∝ p·exp(r/β), and the best of n samples are known exactly, without training and without "
        "sampling.",
        blocks=blocks,
        caveats=(
            "A reply is one token, or one item of a list, and the language model’s probability is "
            "that of a reply that begins with it: longer replies may behave otherwise.",
            "Training may not reach this optimum, and a language model that was trained further "
            "starts from another reference.",
        ),
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
        "n from 2 to a million."
    )
    blocks: list[Block] = [
        Heading(
            place_of(of, prompt),
            f"reference policy: {own['reference'][0]}, which gives these replies "
            f"{100 * own['covered'][0]:.3g} % of its probability",
        ),
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
        if not of.startswith(LIST) or counts[of] <= FEW:
            yield of, prompt


def place_of(of: str, prompt: str) -> str:
    """Prompt and replies in words, such as "Under “best”, over the list “words”"."""
    where = f"list “{of.removeprefix(LIST)}”" if of.startswith(LIST) else of
    return f"Under “{prompt}”, over the {where}"


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
