"""The table of embedded reward models, read by `demo.build` and `demo.training`."""

import dataclasses

WHOLE_VOCABULARY = 49_152
# Of the sweep; no head has learned from them.
PROMPTS = [
    f"What, in one word, is the {word} thing ever?" for word in ("greatest", "best", "worst")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddedModel:
    """A reward model of the demo: the first layers of SmolLM2-135M-Instruct and a trained head."""

    slug: str  # folder name
    nickname: str  # short name for tables and figures
    depth: int  # how many of the trunk's 30 layers the model keeps (the final norm follows them)
    # 'linear' (`score.weight`), 'mlp' (`score.0`, ReLU, `score.2`), or 'lm' (no reward head: the
    # language model itself, whose output head is its embedding).
    head: str
    source: str = ""  # the reviews that the head learned from: 'rt' (sentences) or 'imdb' (reviews)
    # The prompts it was trained on: 'both' (praising and blaming), or 'praising' alone. A linear
    # head cannot reverse its preference with the prompt: trained on both, it stays near chance.
    # Linear heads therefore learn from praising prompts; they are the control that cannot tell
    # "greatest" from "worst".
    frames: str = ""
    # How many of the trunk's tokens the model keeps: those that write `PROMPTS`, then the first.
    vocabulary: int = WHOLE_VOCABULARY

    @property
    def size_b(self) -> float:
        """Parameters in billions: the tied embedding and the layers that are kept."""
        width, kv_width, ffn_width = 576, 192, 1536
        layer = 2 * width * (width + kv_width) + 3 * width * ffn_width
        return round((self.vocabulary * width + self.depth * layer) / 1e9, 3)

    @property
    def head_file(self) -> str:
        """Name of the head's file in `demo/heads`; a model of fewer tokens has the whole one's."""
        return f"{self.slug.removesuffix('-small')}.safetensors"


def _model(depth: int, source: str, head: str) -> EmbeddedModel:
    nickname = f"{source.upper()}-{ {'linear': 'lin', 'mlp': 'mlp'}[head] }-{depth}"
    slug = f"smollm2-135m-d{depth}-{source}-{head}"
    frames = "both" if head == "mlp" else "praising"
    return EmbeddedModel(
        slug=slug, nickname=nickname, depth=depth, head=head, source=source, frames=frames
    )


_ALL = (
    _model(16, "rt", "linear"),
    _model(16, "rt", "mlp"),
    _model(16, "imdb", "mlp"),
    _model(14, "rt", "mlp"),
    _model(12, "imdb", "linear"),
)
EMBEDDED: dict[str, EmbeddedModel] = {model.slug: model for model in _ALL}

# The shallowest, with a sixth of the tokens: `assay demo --small`. Its rewards are the whole
# model's, for these tokens.
SMALL = dataclasses.replace(
    _ALL[-1], slug=f"{_ALL[-1].slug}-small", nickname=f"{_ALL[-1].nickname}-s", vocabulary=8192
)

# The whole SmolLM2-135M-Instruct, from which the reward models' trunk is taken.
LANGUAGE_MODEL = EmbeddedModel(
    slug="smollm2-135m-instruct", nickname="SmolLM2-135M", depth=30, head="lm"
)
