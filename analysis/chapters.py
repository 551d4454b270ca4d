"""The sections of the report that follow one pattern: figure, table, how to read it, caveats."""

import polars as pl

from analysis.blocks import MODEL, PROMPT, Block, Chapter, absent, matched, table
from analysis.tables import Tables

_ENDS = 10  # Rows an end of a list of thousands; the file holds all.


def chapters(found: Tables) -> list[Chapter]:
    """The sections after distributions and agreement, in order."""
    makers = (_explain, _sentiment, _frequency, _framing, _humans, _identity)
    return [maker(found) for maker in (*makers, _sequences, _logprobs, _variance)]


def _explain(found: Tables) -> Chapter:
    blocks = []
    for prompt in found.rewards:
        blocks.append(Block(title=f"Under “{prompt}”"))
        if prompt in found.mds:
            caption = (
                "Each model is a point; the further apart two stand, the less alike they rank the "
                "shared vocabulary. Directions mean nothing. High stress: read distances loosely."
            )
            blocks.append(Block(figure=f"mds_{prompt}", caption=caption))
        if prompt in found.rsa:
            caption = (
                "How well a shared trait predicts agreement over the pairs of models. The p-values "
                "shuffle the models’ names."
            )
            blocks.append(Block(figure=f"rsa_{prompt}", caption=caption))
            blocks += table(found.rsa[prompt], _RSA, f"rsa_{prompt}.csv")
        blocks += absent(found, f"mds_{prompt}", f"rsa_{prompt}")
    blocks += table(found.rsa_fit, _FIT, title="The joint regressions")
    return Chapter(
        id="explained",
        title="What explains agreement",
        label="Explained",
        lead="Models that share a base, a developer, a size or a rank may agree for that reason. "
        "The map shows who stands with whom; the bars test each trait, alone and with the others.",
        blocks=blocks or absent(found, "shared_vocabulary"),
        caveats=(
            "Lineage is confounded with the base: several of the paper’s models were trained from "
            "one another’s weights or on one another’s preference data.",
            "Ten models make 45 pairs that are not independent; the joint slopes of traits that go "
            "together are uncertain however small their p.",
        ),
    )


_RSA = (
    ("predictor", "trait", "text"),
    ("pearson_r", "Pearson’s r", "number"),
    ("mantel_p", "p (Mantel)", "p"),
    ("spearman_rho", "Spearman’s ρ", "number"),
    ("spearman_mantel_p", "p (Mantel)", "p"),
    ("beta", "β, jointly", "number"),
    ("permutation_p", "p (permutation)", "p"),
)
_FIT = (
    PROMPT,
    ("predictors", "traits", "count"),
    ("pairs", "pairs", "count"),
    ("r_squared", "R²", "number"),
    ("p", "p", "p"),
    ("max_vif", "largest variance inflation", "number"),
)


def _sentiment(found: Tables) -> Chapter:
    blocks: list[Block] = []
    if found.sentiment_slopes.height:
        caption = (
            "A line rising to the right: better words score higher. A line falling to the left: "
            "worse words score lower. Lines start at zero, so they show slopes, not levels; bands "
            "are 95% intervals. Each model has its own unit of reward."
        )
        blocks.append(Block(figure="sentiment_slopes", caption=caption))
        blocks += table(found.sentiment_slopes, _SLOPES, "sentiment_slopes.csv")
    if found.bing_effects.height:
        caption = "Bing lexicon: 0.5 is a coin toss, 1 puts every positive word above every other."
        blocks.append(Block(figure="bing_effects", caption=caption))
        blocks += table(found.bing_effects, _BING)
    blocks += absent(found, "sentiment_slopes", "bing_effects")
    return Chapter(
        id="sentiment",
        title="Sentiment",
        label="Sentiment",
        lead="Does a model’s reward follow the valence of a word? For the tokens that are words of "
        "the AFINN lexicon, the reward is regressed on valence (−5 to 5), apart for positive and "
        "for other words.",
        blocks=[*blocks, *matched(found, "sentiment")],
        caveats=(
            "Only whole words that are one token take part, in English; by default a token with a "
            "leading space matches no word, as in the paper.",
            "A slope is in the model’s own unit of reward: compare signs and prompts within a "
            "model, not sizes between models.",
        ),
    )


_SLOPES = (
    MODEL,
    PROMPT,
    ("valence", "valence", "text"),
    ("slope", "slope", "number"),
    ("stderr", "standard error", "number"),
    ("p", "p", "p"),
    ("n", "n", "count"),
)
_BING = (
    MODEL,
    PROMPT,
    ("auc", "pairs in order", "number"),
    ("ci_low", "from", "number"),
    ("ci_high", "to", "number"),
    ("cohens_d", "Cohen’s d", "number"),
    ("p", "p", "p"),
)


def _frequency(found: Tables) -> Chapter:
    blocks = absent(found, "frequency_slopes")
    if found.frequency_slopes.height:
        caption = (
            "Right of zero, commoner words score higher at equal sentiment. 95% intervals; each "
            "model has its own scale."
        )
        blocks = [Block(figure="frequency_slopes", caption=caption)]
        columns = tuple(column for column in _SLOPES if column[0] != "valence")
        blocks += table(found.frequency_slopes, columns, "frequency_slopes.csv")
    return Chapter(
        id="frequency",
        title="Frequency",
        label="Frequency",
        lead="Do models prefer common words? Among the words of the sentiment lexicon, reward is "
        "regressed on the logarithm of frequency and on valence together.",
        blocks=[*blocks, *matched(found, "frequency")],
        caveats=(
            "Common words are also shorter and better trained; the slope cannot tell these apart.",
        ),
    )


def _framing(found: Tables) -> Chapter:
    blocks: list[Block] = []
    if found.framing.height:
        columns = (
            MODEL,
            ("prompt_a", "prompt", "text"),
            ("prompt_b", "and prompt", "text"),
            ("pearson", "Pearson’s r", "number"),
            ("spearman", "Spearman’s ρ", "number"),
            ("kendall", "Kendall’s τ", "number"),
        )
        blocks += table(found.framing, columns, "framing.csv")
    said = {
        "sum": "High in the sum: rewarded whatever was asked. Low: punished whatever was asked.",
        "difference": "The ends: rewarded under one prompt and punished under the other.",
    }
    for stem, caption in said.items():
        frame = getattr(found, f"framing_{stem}")
        if frame.height:
            blocks.append(Block(figure=f"framing_{stem}", caption=caption, title=stem.title()))
            blocks += table(frame, _TOKENS, f"framing_{stem}.csv")
    if found.framing_axis.height:
        blocks += table(found.framing_axis, _AXES, title="Principal axes of the two rewards")
    return Chapter(
        id="framing",
        title="Framing",
        label="Framing",
        lead="A model that understood the question would turn its order round when asked for the "
        "worst instead of the best. What stays high or low under both is a taste of its own.",
        blocks=[*blocks, *absent(found, "framing", "framing_sum", "framing_axis")],
        caveats=("The sum weighs the prompt whose rewards vary more; the axes show how much.",),
    )


_TOKENS = (
    MODEL,
    ("end", "end", "text"),
    ("rank", "rank", "count"),
    ("token", "token", "token"),
    ("token_id", "token id", "count"),
    ("reward", "value", "number"),
)
_AXES = (
    MODEL,
    ("prompt_a", "prompt", "text"),
    ("prompt_b", "and prompt", "text"),
    ("axis", "axis", "count"),
    ("axis_kind", "kind", "text"),
    ("loading_a", "loading", "number"),
    ("loading_b", "loading", "number"),
    ("share", "share of variance", "share"),
)


def _humans(found: Tables) -> Chapter:
    blocks = absent(found, "humans_correlation")
    for items, prompt in found.humans_ranks:
        stem = f"{items}_{prompt}"
        gap = found.humans_gap.filter(list=items, prompt=prompt).sort("gap", descending=True)
        blocks += [
            Block(title=f"{items}, prompt “{prompt}”"),
            Block(
                figure=f"humans_correlation_{stem}",
                caption="1 would be the people’s own order, 0 no relation to it.",
            ),
            Block(
                figure=f"humans_gap_{stem}",
                caption="The items that the models together rank most unlike the people.",
            ),
            Block(
                figure=f"humans_ranks_{stem}",
                caption="A line an item, from the people’s rank through every model’s. Below, the "
                "first thousand ranks on a logarithmic scale.",
            ),
            Block(
                figure=f"humans_kendall_{stem}",
                caption="Kendall’s τ-b of every two orders of the items.",
            ),
        ]
        chosen = gap if gap.height <= 2 * _ENDS else pl.concat([gap.head(_ENDS), gap.tail(_ENDS)])
        blocks += table(chosen, _GAPS, "humans_gap.csv")
    columns = (
        ("list", "list", "text"),
        PROMPT,
        MODEL,
        ("spearman", "Spearman’s ρ", "number"),
        ("kendall", "Kendall’s τ", "number"),
    )
    return Chapter(
        id="humans",
        title="Against people",
        label="People",
        lead="Where people have ranked the same items, how close do models come, and what do they "
        "put elsewhere? A positive gap means that the models rank an item lower than people do.",
        blocks=[*blocks, *table(found.humans_correlation, columns, "humans_correlation.csv")],
        caveats=(
            "The people are those who voted on one web site; they stand for nobody else.",
            "The models’ rank is a median: an item on which they differ has no rank of theirs.",
        ),
    )


_GAPS = (
    ("item", "item", "token"),
    ("human_rank", "people’s rank", "count"),
    ("model_rank", "models’ rank", "count"),
    ("gap", "gap", "count"),
)


def _identity(found: Tables) -> Chapter:
    blocks = absent(found, "identity")
    for prompt in found.identity["prompt"].unique(maintain_order=True):
        caption = (
            f"Prompt “{prompt}”. A group’s words on average stand at this percentile of the "
            "vocabulary; bars are 95% bootstrap intervals. Filled: p < .05 against neutral words "
            "matched to them."
        )
        blocks.append(Block(figure=f"identity_{prompt}", caption=caption))
    if found.identity_q.height:
        blocks += table(found.identity_q, _GROUPS, "identity.csv")
    return Chapter(
        id="identity",
        title="Words for groups of people",
        label="Groups",
        lead="Where do the words for groups of people stand, against neutral words like them? Low "
        "under a prompt for the best, or high under one for the worst, is a slight.",
        blocks=[*blocks, *matched(found, "identity")],
        caveats=(
            "A word is not a person: a model may mark down a word for how it is used, or any noun "
            "for people, as no answer to the question.",
            "q is p corrected for the number of comparisons (Benjamini and Hochberg): trust q.",
            "Groups with few words have wide intervals, and our list of words is a choice.",
        ),
    )


_GROUPS = (
    MODEL,
    PROMPT,
    ("axis", "axis", "text"),
    ("group", "group", "text"),
    ("n", "words", "count"),
    ("mean_percentile", "mean percentile", "share"),
    ("ci_low", "from", "share"),
    ("ci_high", "to", "share"),
    ("p", "p", "p"),
    ("q", "q", "p"),
)


def _sequences(found: Tables) -> Chapter:
    blocks = absent(found, "sequences")
    if found.sequence_traces.height:
        caption = "Full lines sought the highest reward, dashed ones the lowest; a line a seed."
        blocks.append(Block(figure="sequence_traces", caption=caption))
    if found.sequences.filter(pl.col("flops") > 0).height:
        caption = "Filled: highest sought; hollow: lowest. Cheap and high is good."
        blocks.append(Block(figure="sequences", caption=caption))
    blocks += table(found.sequences, _SEQUENCES, "sequences.csv", title="What the searches found")
    if found.sequences.height:
        blocks += table(
            found.sequence_transfer, _TRANSFER, title="The same text under other models"
        )
        blocks += absent(found, "sequence_transfer")
    return Chapter(
        id="sequences",
        title="Longer replies",
        label="Sequences",
        lead="What several tokens does a model reward most and least? A search climbs the reward.",
        blocks=blocks,
        caveats=(
            "A search finds a local extreme: another seed or method may find better.",
            "A text that does not round-trip is scored as ids that no writer could type.",
        ),
    )


_SEQUENCES = (
    MODEL,
    PROMPT,
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("seed", "seed", "count"),
    ("length", "tokens", "count"),
    ("reward", "reward", "number"),
    ("percentile", "percentile", "share"),
    ("text", "text", "token"),
    ("round_trips", "round-trips", "bool"),
    ("flops", "operations", "number"),
)
_TRANSFER = (
    ("source", "found on", "model"),
    ("target", "scored by", "model"),
    PROMPT,
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("text", "text", "token"),
    ("reward", "reward", "number"),
    ("percentile", "percentile", "share"),
)


def _logprobs(found: Tables) -> Chapter:
    blocks = absent(found, "logprobs")
    for prompt, frame in found.logprobs.items():
        caption = f"What language models themselves would say first, and last, to “{prompt}”."
        blocks.append(Block(figure=f"logprobs_{prompt}", caption=caption))
        columns = (*_TOKENS[:-1], ("logprob", "log-probability", "number"))
        blocks += table(frame, columns, f"logprobs_{prompt}.csv")
    columns = (
        PROMPT,
        ("language_model", "language model", "text"),
        MODEL,
        ("n", "shared tokens", "count"),
        ("pearson", "Pearson’s r", "number"),
        ("spearman", "Spearman’s ρ", "number"),
        ("kendall", "Kendall’s τ", "number"),
    )
    title = "Log-probability against reward"
    return Chapter(
        id="logprobs",
        title="Language models",
        label="Language models",
        lead="Is what a reward model likes what its base model would have said?",
        blocks=[*blocks, *table(found.logprobs_rewards, columns, title=title)],
        caveats=("The next token’s probability also carries grammar: a reward does not.",),
    )


def _variance(found: Tables) -> Chapter:
    blocks = absent(found, "variance")
    if found.variance.height:
        columns = (
            ("component", "what differs", "text"),
            ("share", "share", "share"),
            ("ci_low", "from", "share"),
            ("ci_high", "to", "share"),
        )
        caption = "How much of where a token stands is the token’s own, the model’s, the prompt’s."
        blocks = [
            Block(figure="variance", caption=caption),
            *table(found.variance, columns),
        ]
    return Chapter(
        id="variance",
        title="Model or prompt",
        label="Variance",
        lead="A token’s percentile varies between models and between prompts. A large share of "
        "token × model says that models have tastes of their own; token × prompt, that they "
        "answer the question.",
        blocks=blocks,
        caveats=("The last share holds the noise too: one score a token, model and prompt.",),
    )
