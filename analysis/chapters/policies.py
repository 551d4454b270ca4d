"""What a policy trained on each reward would say, exactly, for replies whose probability is known.

No table of the paper: it suggests that reward models shape policies, and measures the rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from analysis.measures.policies import (
    BEST_OF_N,
    MOVERS,
    OPTIMAL,
    POLICIES,
    SHOWN_KL,
    movers,
    policies_of,
)
from analysis.measures.reference_policy import (
    KLS,
    LIST,
    Replies,
    lists,
    not_taken,
    prompts_without_reference,
    vocabularies,
    without_reference,
)
from analysis.sentences import listed
from analysis.study import Study, Table, required, table
from analysis.words.questions import questions

_REPLIES = "replies with a reference policy"

_LISTED_KLS = (SHOWN_KL, 4.0)
_SHOWN_DRAWS = (1, 4, 16, 64, 256, 1024, 65536, 1_000_000)
_NAMED = 3  # Prompts that a note names.


def tables(study: Study) -> Iterator[Table]:
    """policies.csv and policy_replies.csv."""
    yield table("policies", make=partial(_policies, study))
    yield table("policy_replies", make=partial(_movers, study))


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
    known = (
        "No reward model that tells replies apart was scored under a prompt of a language model "
        "with its tokens: a reference policy needs the same vocabulary and the same prompt."
    )
    return " ".join([known, *_left_out(study)])


def _left_out(study: Study) -> list[str]:
    """One sentence on models, and one on prompts, that have no reference policy."""
    said = []
    models = without_reference(study.run, study.models) if study.run.logprobs else []
    if models:
        names = listed([study.names[model] for model in models])
        said.append(
            "No language model of the run has the same tokens under the same ids, so these are "
            f"left out over the vocabulary: {names}."
        )
    if prompts := prompts_without_reference(study.run, study.models):
        each = pl.DataFrame(prompts, schema=["of", "prompt"], orient="row")
        groups = each.group_by("of", maintain_order=True)
        places = [f"the {_replies_of(str(of))}: {_few(own['prompt'])}" for (of,), own in groups]
        said.append(
            "No language model scored these replies under these prompts, so no policy is known "
            "there: over "
            f"{'; over '.join(places)}. assay logprobs adds them to a run."
        )
    return said


def _unused(study: Study) -> list[str]:
    """One sentence on language models beside those that are taken."""
    rest = [study.names.get(model, model) for model in not_taken(study.run, study.models)]
    if not rest:
        return []
    return [
        "Not used as a reference policy, because another language model is taken for the same "
        f"replies: {listed(rest)}. A chat form goes first, then the first by name."
    ]


def _few(prompts: pl.Series) -> str:
    """The first prompts, and how many there are more."""
    named = [f"“{prompt}”" for prompt in prompts.head(_NAMED)]
    more = len(prompts) - len(named)
    return listed([*named, f"{more} more"] if more else named)


def _policies(study: Study) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=POLICIES), *(policies_of(each) for each in known_replies(study))]
    return required(pl.concat(frames), reason(study))


def _movers(study: Study) -> pl.DataFrame:
    frames = [movers(each, _LISTED_KLS, study.settings.top) for each in known_replies(study)]
    return required(pl.concat([pl.DataFrame(schema=MOVERS), *frames]), reason(study))


def section(study: Study) -> Section:
    """Curves of gain against KL, then what is said at one KL."""
    made = study.tables
    blocks: list[Block] = notes([made.reason("policies")])
    every = made.get("policies")
    if every is not None:
        blocks += notes([*_left_out(study), *_unused(study), *not_drawn(study, every)])
        for of, prompt in drawn(study, every):
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
            "Policies over a list say nothing but its items: they share out what the language "
            "model gives all items together, which may be a small part of its probability.",
            "Training may not reach this optimum, and a language model that was trained further "
            "starts from another reference.",
        ),
    )


def _of_prompt(study: Study, of: str, prompt: str) -> list[Block]:
    own = study.tables["policies"].filter(of=of, prompt=prompt)
    optimal, best = (own.filter(method=method) for method in (OPTIMAL, BEST_OF_N))
    stem = f"policies_{file_name(of)}_{prompt}"
    caption = (
        "Rise of the mean reward, in standard deviations under the language model, against the KL "
        "from it. Lines: the optimal policy, which nothing can be above; a line ends where the "
        "policy says the replies of the highest reward alone. Points: best of n, for n from 2 to a "
        "million."
    )
    share = f"{100 * own['covered'][0]:.3g} % of its probability"
    blocks: list[Block] = [
        Heading(
            place_of(of, prompt),
            f"reference policy: {own['reference'][0]}, which gives these replies {share}",
        ),
        Picture(stem, caption, partial(climbs.gains, optimal, best, study.names)),
    ]
    moved = study.tables.get("policy_replies")
    if moved is not None:
        shown = moved.filter(of=of, prompt=prompt, kl=SHOWN_KL)
        shown = shown.filter(pl.col("rank") <= study.settings.figure_top)
        title = f"Replies that gain and lose most at a KL of {SHOWN_KL:g} nat"
        shown = in_percent(shown, "p", "policy", "change")
        inside = rows(shown, _MOVERS, "policy_replies.csv", unfolded=True)
        if inside:
            blocks.append(Folded(title, inside))
    return blocks


def drawn(study: Study, rows_of: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Replies and prompt of each figure: vocabularies, and lists under up to `FEW` prompts."""
    for of, prompts in asked_of(rows_of):
        chosen = prompts
        if len(prompts) > FEW and of.startswith(LIST):
            chosen = _first_wordings(study, prompts)
        yield from ((of, prompt) for prompt in chosen)


def asked_of(rows_of: pl.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """Each set of replies of a table, and its prompts."""
    for (of,), own in rows_of.group_by("of", maintain_order=True):
        yield str(of), own["prompt"].unique(maintain_order=True).to_list()


def _first_wordings(study: Study, prompts: Sequence[str]) -> list[str]:
    """The first wordings of up to `FEW` questions; questions of each framing take turns."""
    texts = {prompt: study.run.prompts[prompt] for prompt in prompts}
    asked = questions(texts, study.options.questions)
    first = asked.unique("question", keep="first", maintain_order=True)
    turn = pl.int_range(pl.len()).over("framing")
    return first.sort(turn, maintain_order=True)["prompt"].head(FEW).to_list()


def not_drawn(study: Study, rows_of: pl.DataFrame) -> Iterator[str]:
    """Which prompts of each list the figures show, where they do not show all."""
    shown = list(drawn(study, rows_of))
    for of, prompts in asked_of(rows_of):
        own = [f"“{prompt}”" for replies, prompt in shown if replies == of]
        if len(own) < len(prompts):
            yield (
                f"The {_replies_of(of)} was read under {len(prompts)} prompts. Its figures show "
                f"the first wording of up to {FEW} questions, {listed(own)}; the tables and their "
                "files have every prompt."
            )


def place_of(of: str, prompt: str) -> str:
    """Prompt and replies in words, such as "Under “best”, over the list “words”"."""
    return f"Under “{prompt}”, over the {_replies_of(of)}"


def _replies_of(of: str) -> str:
    return f"list “{of.removeprefix(LIST)}”" if of.startswith(LIST) else of


def _tables(study: Study) -> list[Block]:
    every = study.tables["policies"]
    shown = every.filter(
        (pl.col("method") == OPTIMAL) & pl.col("kl").round(6).is_in([0.5, 1.0, 2.0, 4.0])
        | (pl.col("method") == BEST_OF_N) & pl.col("n").is_in(_SHOWN_DRAWS)
    )
    title = "Policies at a few KLs"
    blocks = rows(in_percent(shown, "covered"), _POLICIES, "policies.csv", title)
    how = (
        "covered is the part of the language model’s probability that these replies have "
        "together; policies share it out. entropy is in nats; replies is its exponential, the "
        "effective number of different replies. β has the unit of the reward. bound is "
        "log n − (n − 1)/n, which the KL of best of n cannot exceed. The file has every KL from "
        f"{KLS[0]:g} to {KLS[-1]:g} and each nat beyond, the KLs of best of n, and the limit "
        "β = 0, where only the replies of the highest reward are left."
    )
    return [*blocks, Text(how, "how")]


def in_percent(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Shares in percent with three digits, however small they are."""
    return frame.with_columns((pl.col(name) * 100).round_sig_figs(3) for name in columns)


_MOVERS: tuple[Column, ...] = (
    MODEL,
    ("end", "end", "text"),
    ("rank", "rank", "count"),
    ("reply", "reply", "token"),
    ("p", "reference, %", "number"),
    ("policy", "policy, %", "number"),
    ("change", "change, points", "number"),
)
_POLICIES: tuple[Column, ...] = (
    ("of", "replies of", "text"),
    PROMPT,
    MODEL,
    ("covered", "covered, %", "number"),
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
