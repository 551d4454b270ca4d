"""The sections of the report that follow one pattern: figure, table, how to read it, caveats."""

import polars as pl

from analysis import list_chapters, model_chapters, word_chapters
from analysis.blocks import MODEL, PROMPT, TOKENS, Block, Chapter, absent, table
from analysis.tables import Tables


def chapters(found: Tables) -> list[Chapter]:
    """The sections after distributions and agreement, in order."""
    words = (word_chapters.sentiment, word_chapters.frequency)
    people = (list_chapters.lists, list_chapters.humans, word_chapters.identity)
    inside = (model_chapters.objectives, model_chapters.language_models)
    makers = (_explain, *words, _framing, *people, _sequences, *inside, _variance)
    return [maker(found) for maker in makers]


def _explain(found: Tables) -> Chapter:
    blocks: list[Block] = []
    mapped = {*found.mds, *found.rsa}
    if not mapped:
        blocks = absent(found, *(f"mds_{prompt}" for prompt in found.rewards))
    for prompt in found.rewards if mapped else ():
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
            "Lineage is confounded with the base: models trained from one another’s weights, or on "
            "one another’s preference data, mostly share their base too.",
            "Pairs that share a model are not independent; the joint slopes of traits that go "
            "together are uncertain however small their p.",
        ),
    )


_RSA = (
    ("predictor", "trait", "text"),
    ("pearson_r", "Pearson’s r", "fixed"),
    ("mantel_p", "p (Mantel)", "p"),
    ("spearman_rho", "Spearman’s ρ", "fixed"),
    ("spearman_mantel_p", "p (Mantel)", "p"),
    ("beta", "β, jointly", "fixed"),
    ("permutation_p", "p (permutation)", "p"),
)
_FIT = (
    PROMPT,
    ("predictors", "traits", "count"),
    ("pairs", "pairs", "count"),
    ("r_squared", "R²", "fixed"),
    ("p", "p", "p"),
    ("max_vif", "largest variance inflation", "number"),
)


def _framing(found: Tables) -> Chapter:
    good, bad = found.framing_prompts
    blocks: list[Block] = []
    if found.framing_sum.height:
        caption = (
            f"Every token of a model under “{good}” and “{bad}”; darker hexagons hold more tokens, "
            "on a logarithmic scale. A model that understood both questions and nothing else would "
            "fall from left to right; one that likes a word whatever the question rises. Lines are "
            "the principal axes, two standard deviations each way: brown where both rewards rise "
            "together, teal where one rises as the other falls."
        )
        blocks.append(Block(figure="framing", caption=caption))
    if found.framing.height:
        columns = (
            MODEL,
            ("prompt_a", "prompt", "text"),
            ("prompt_b", "and prompt", "text"),
            ("pearson", "Pearson’s r", "fixed"),
            ("spearman", "Spearman’s ρ", "fixed"),
            ("kendall", "Kendall’s τ", "fixed"),
        )
        blocks += table(found.framing, columns, "framing.csv")
    said = {
        "sum": "High in the sum: rewarded whatever was asked. Low: punished whatever was asked.",
        "difference": f"High: rewarded under “{good}” beside “{bad}”. Low: the other way round.",
    }
    for stem, caption in said.items():
        frame = getattr(found, f"framing_{stem}")
        if frame.height:
            title = f"{stem.title()} of “{good}” and “{bad}”"
            blocks.append(Block(figure=f"framing_{stem}", caption=caption, title=title))
            blocks += table(frame, TOKENS, f"framing_{stem}.csv")
    if found.framing_axis.height:
        title = "Principal axes of the two rewards"
        blocks += table(found.framing_axis, _AXES, "framing_axis.csv", title=title)
    return Chapter(
        id="framing",
        title="Framing",
        label="Framing",
        lead="A model that understood the question would turn its order round when asked for the "
        "worst instead of the best. What stays high or low under both is a taste of its own.",
        blocks=[*blocks, *absent(found, "framing", "framing_sum", "framing_axis")],
        caveats=("The sum weighs the prompt whose rewards vary more; the axes show how much.",),
    )


_AXES = (
    MODEL,
    ("prompt_a", "prompt", "text"),
    ("prompt_b", "and prompt", "text"),
    ("axis", "axis", "count"),
    ("axis_kind", "kind", "text"),
    ("loading_a", "loading", "fixed"),
    ("loading_b", "loading", "fixed"),
    ("share", "share of variance", "share"),
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
            found.sequence_transfer,
            _TRANSFER,
            "sequence_transfer.csv",
            title="The same text under other models",
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
    ("reward_from_text", "reward of the text", "number"),
    ("rejected", "texts rejected", "count"),
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
            *table(found.variance, columns, "variance.csv"),
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
