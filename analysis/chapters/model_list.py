"""The models of the run: who made them, from what, and which prompts they scored."""

from collections.abc import Iterator

from analysis.blocks import Block, Column, Files, Section, Text, notes, rows
from analysis.study import Study, Table, table


def tables(study: Study) -> Iterator[Table]:
    """models.csv."""
    yield table("models", make=lambda: study.described)


def section(study: Study) -> Section:
    """Metadata of the models, what they share, and what was not scored."""
    blocks: list[Block] = rows(study.described, _COLUMNS, "models.csv", "All models", unfolded=True)
    shared = study.tables.get("shared_vocabulary")
    if shared is not None and len(study.scored) > 1:
        text = (
            f"{shared.height:,} strings decode from exactly one token in every model: the shared "
            "vocabulary. Case and spaces count. A string that several tokens of one vocabulary "
            "decode to is left out. Models that descend from one another, or from one base, are "
            "not independent witnesses."
        )
        blocks += [Text(text, "how"), Files(["shared_vocabulary.csv"])]
    blocks += notes([study.tables.reason("shared_vocabulary")])
    prompts = study.run.vocabulary_prompts
    missing = [
        f"{study.names[model]} under “{prompt}”"
        for model in study.scored
        for prompt in prompts
        if (model, prompt) not in study.run.results
    ]
    if missing:
        text = f"Not scored: {', '.join(missing)}. Those models are absent from that prompt."
        blocks.append(Text(text, "warning"))
    return Section(id="models", title="Models", label="Models", lead="", blocks=blocks)


_COLUMNS: tuple[Column, ...] = (
    ("model", "model", "slug"),
    ("developer", "developer", "text"),
    ("base", "base", "text"),
    ("size_b", "size (B)", "number"),
    ("rewardbench_rank", "RewardBench rank", "number"),
    ("vocabulary", "vocabulary", "count"),
)
