"""The sections of the report on words of known sentiment, frequency or meaning."""

from analysis.blocks import MODEL, PROMPT, Block, Chapter, absent, matched, table
from analysis.tables import Tables


def sentiment(found: Tables) -> Chapter:
    """Reward against the valence of a word."""
    blocks = _each(
        found,
        "sentiment_points",
        "Each point is a token: its reward against its valence, under “{}”. Teal words "
        "are positive, brown ones are not; lines are least squares within each side.",
    )
    if found.sentiment_slopes.height:
        caption = (
            "A line rising to the right: better words score higher. A line falling to the left: "
            "worse words score lower. Lines start at zero, so they show slopes, not levels; bands "
            "are 95% intervals. Each model has its own unit of reward."
        )
        blocks.append(Block(figure="sentiment_slopes", caption=caption))
        blocks += table(found.sentiment_slopes, _SLOPES, "sentiment_slopes.csv")
    blocks += _each(
        found,
        "bing_points",
        "Rewards of the negative and the positive words of the Bing lexicon under “{}”; "
        "the bars are medians.",
    )
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
        blocks=[*blocks, *matched(found, "sentiment", "bing")],
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
    ("auc", "pairs in order", "fixed"),
    ("ci_low", "from", "fixed"),
    ("ci_high", "to", "fixed"),
    ("cohens_d", "Cohen’s d", "fixed"),
    ("p", "p", "p"),
    ("n_positive", "n positive", "count"),
    ("n_negative", "n negative", "count"),
)


def frequency(found: Tables) -> Chapter:
    """Reward against how often a word is used."""
    blocks = absent(found, "frequency_slopes")
    if found.frequency_slopes.height:
        caption = (
            "Right of zero, commoner words score higher at equal sentiment. 95% intervals; each "
            "model has its own scale."
        )
        blocks = _each(
            found,
            "frequency_points",
            "Each point is a token: its reward under “{}”, with the fitted part of its valence "
            "taken out, against its frequency. The line is the slope below.",
        )
        blocks.append(Block(figure="frequency_slopes", caption=caption))
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


def identity(found: Tables) -> Chapter:
    """Words for groups of people beside neutral words."""
    blocks = absent(found, "identity")
    for prompt in found.identity["prompt"].unique(maintain_order=True):
        caption = (
            f"Prompt “{prompt}”. A group’s words on average stand at this percentile of the "
            "vocabulary; bars are 95% bootstrap intervals (none: one word). Filled: q < .05 "
            "against neutral words matched to them."
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
            "q is p corrected for the number of comparisons in the table (Benjamini and Hochberg): "
            "of a hundred filled dots about five are chance.",
            "Groups with few words have wide intervals, and our list of words is a choice.",
        ),
    )


_GROUPS = (
    MODEL,
    PROMPT,
    ("axis", "axis", "text"),
    ("group", "group", "text"),
    ("n", "tokens", "count"),
    ("mean_percentile", "mean percentile", "share"),
    ("ci_low", "from", "share"),
    ("ci_high", "to", "share"),
    ("difference", "beside neutral", "share"),
    ("p", "p", "p"),
    ("q", "q", "p"),
)


def _each(found: Tables, points: str, caption: str) -> list[Block]:
    """A figure a prompt under which the table `points` has rows."""
    there = set(getattr(found, points)["prompt"].unique())
    return [
        Block(figure=f"{points}_{prompt}", caption=caption.format(prompt))
        for prompt in found.rewards
        if prompt in there
    ]
