"""The head of models that are made from shapes alone."""

from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig


def linear_head(decoder: DecoderConfig) -> HeadConfig:
    """The linear head of a decoder; other heads cost a millionth of a step more."""
    return HeadConfig(
        kind="linear",
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
    )
