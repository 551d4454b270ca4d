"""The models of the run: who made them, from what, and which prompts they scored."""

from collections.abc import Iterator

from analysis.blocks import Block, Files, Text
from analysis.columns import Column, Spec
from analysis.study import Analysis, Study, table
from engine.runs import schema

MODELS = Spec(
    "models",
    (
        *(Column("model", "slug"), Column("nickname"), Column("developer"), Column("base")),
        Column("size_b", "number", "size (B)", "billions of parameters"),
        Column("rewardbench_rank", "number", "RewardBench rank"),
        Column("vocabulary", "count", help="tokens"),
    ),
    page="model developer base size_b rewardbench_rank vocabulary",
    title="All models",
)


def _drawn(study: Study) -> Iterator[Block]:
    """Metadata of the models, what they share, and what was not scored."""
    yield from MODELS.rows(study.described, unfolded=True)
    for model in study.models:
        if pair := study.run.models[model].get(schema.PAIR):
            yield Text(
                f"{study.names[model]} is a pair of language models: its reward is "
                f"{pair['beta']:g} (log π − log π_ref), where π is {pair['policy']['slug']} and "
                f"π_ref is {pair['reference']['slug']}, both given the prompt in the form "
                f"“{pair['form']}”. No end of turn is counted, so a token is the beginning of a "
                "reply. Such rewards have no common zero under two prompts."
            )
    shared = study.tables.get("shared_vocabulary")  # None without the chapter of tokens
    if shared is not None and len(study.scored) > 1:
        text = (
            f"{shared.height:,} strings decode from exactly one token in every model: the shared "
            "vocabulary. Case and spaces count. A string that several tokens of one vocabulary "
            "decode to is left out. Models that descend from one another, or from one base, are "
            "not independent witnesses."
        )
        yield from (Text(text, "how"), Files(["shared_vocabulary.csv"]))
    missing = [
        f"{study.names[model]} under {study.prompt_names[prompt]}"
        for model in study.scored
        for prompt in study.run.vocabulary_prompts
        if (model, prompt) not in study.run.results
    ]
    if missing:
        text = f"Not scored: {', '.join(missing)}. Those models are absent from that prompt."
        yield Text(text, "warning")


ANALYSIS = Analysis(
    id="models",
    title="Models",
    lead="",
    make=lambda study: [table(MODELS.name, make=lambda: study.described)],
    parts=(_drawn,),
)
