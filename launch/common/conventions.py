"""Conventions of a model: every reasonable way to show it a conversation and take its reward.

The default convention is the checkpoint's policy under the settings of the command; the others
differ from it in one dimension, or in any number.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs.convention_index import DEFAULT
from engine.scoring.reward_passes import dtype_named
from engine.scoring.rows import mode_of, pooling_of
from engine.settings import MODES, POOLINGS, SweepSettings
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from launch.common.text import nearest, pieces

# Dates that are no date: what the template prints by itself, and an empty one.
OWN_DATE, NO_DATE = "template", "empty"
_DATES = {OWN_DATE: None, NO_DATE: ""}
_URM = ("urm", "urm-helpfulness")
_PROBE = "What?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convention:
    """One way to read a model."""

    bos: str  # as `TemplatePolicy.bos`
    date: str  # the date for a template that prints one; `OWN_DATE` or `NO_DATE`
    newlines: str  # as `TemplatePolicy.newlines`
    mode: str  # how a reply becomes token ids, `ids` or `text`
    pooling: str  # where the reward is read: a kind of `engine.scoring.rows.Pooling`
    head: str  # kind of the head: one of URM's two published ones
    softcap: str  # `on` or `off`; `none` for a model without a soft-cap of attention
    dtype: str  # of the decoder

    @property
    def weights(self) -> tuple[str, str, str]:
        """Conventions with equal values here share the parameters on the devices."""
        return self.head, self.softcap, self.dtype

    def applied(self, checkpoint: Checkpoint) -> Checkpoint:
        """The same files under another card; no parameter depends on what changes."""
        card = checkpoint.card
        decoder = card.decoder
        if self.softcap == "off":
            decoder = dataclasses.replace(decoder, attention_softcap=None)
        date = _DATES.get(self.date, self.date)
        card = dataclasses.replace(
            card,
            decoder=decoder,
            head=dataclasses.replace(card.head, kind=self.head),
            policy=TemplatePolicy(bos=self.bos, date=date, newlines=self.newlines),
        )
        return dataclasses.replace(checkpoint, card=card)

    def settings(self, settings: SweepSettings) -> SweepSettings:
        """The settings of a command, with the mode, pooling and dtype of this convention."""
        return dataclasses.replace(settings, mode=self.mode, pooling=self.pooling, dtype=self.dtype)


DIMENSIONS = tuple(field.name for field in dataclasses.fields(Convention))
Values = Mapping[str, Sequence[str]]  # dimension -> its values, the default one first


def dimensions_of(setting: str) -> Sequence[str]:
    """The dimensions that a setting names, comma-separated; `all` of them."""
    chosen = DIMENSIONS if setting == "all" else pieces(setting)
    for name in chosen:
        if name not in DIMENSIONS:
            allowed = ", ".join(DIMENSIONS)
            raise AssayError(f"dimensions={name!r}{nearest(name, DIMENSIONS)}; allowed: {allowed}")
    return chosen


def values_of(
    checkpoint: Checkpoint,
    settings: SweepSettings,
    dimensions: Sequence[str],
    dates: Sequence[str],
    dtypes: Sequence[str],
) -> Values:
    """The values of every dimension that the model allows, the default one first.

    A model without a soft-cap, or a template that prints no date, has one value there. Of the
    settings mode, pooling and dtype count. `dimensions` vary; the rest keep their default value.
    `dates` and `dtypes` are tried beside those of checkpoint, template and settings.
    """
    for dtype in dtypes:
        dtype_named(dtype)
    card, template = checkpoint.card, checkpoint.template
    head, policy = card.head.kind, card.policy
    has_bos = template.tokenizer.bos_token_id is not None
    capped = card.decoder.attention_softcap is not None
    every = {
        "bos": [policy.bos, *(("none", "single") if has_bos else ()), "double"],
        "date": _dates(template, dates),
        "newlines": [policy.newlines, *(("keep", "trim") if _has_newlines(template) else ())],
        "mode": [
            mode_of(checkpoint, [_PROBE], settings.mode),
            *(MODES if template.cuttable(_PROBE) else ()),
        ],
        "pooling": [pooling_of(checkpoint, settings.pooling).kind, *_poolings(checkpoint)],
        "head": [head, *(_URM if head in _URM else ())],
        "softcap": ["on", "off"] if capped else ["none"],
        "dtype": [settings.dtype, *dtypes],
    }
    unique = {name: list(dict.fromkeys(values)) for name, values in every.items()}
    return {name: v if name in dimensions else v[:1] for name, v in unique.items()}


def conventions_of(values: Values, *, all_combinations: bool) -> dict[str, Convention]:
    """Name -> convention: the default one, then each other value alone, or all combinations.

    Of values that differ in neither letters nor digits the first counts.
    """
    default = {name: allowed[0] for name, allowed in values.items()}
    if all_combinations:
        cells = itertools.product(*values.values())
        every = [dict(zip(values, chosen, strict=True)) for chosen in cells]
    else:
        every = [default | {name: v} for name, allowed in values.items() for v in allowed[1:]]
    named = {DEFAULT: Convention(**default)}
    for chosen in every:
        changed = {name: value for name, value in chosen.items() if value != default[name]}
        named.setdefault(_name(changed) or DEFAULT, Convention(**chosen))
    return named


def _dates(template: ChatTemplate, dates: Sequence[str]) -> list[str]:
    """The template's date, then those that change what it renders."""
    given = template.policy.date
    default = {None: OWN_DATE, "": NO_DATE}.get(given, given) or OWN_DATE
    rendered: dict[str, str] = {}
    # A template that asks for today's date has none of its own: OWN_DATE is refused below.
    for date in dict.fromkeys([default, *dates, OWN_DATE, NO_DATE]):
        policy = dataclasses.replace(template.policy, date=_DATES.get(date, date))
        try:
            [text] = ChatTemplate(template.tokenizer, policy).render(_PROBE, ["a"])
        except AssayError:
            continue  # the template refuses such a date
        if text not in rendered.values():
            rendered[date] = text
    return [default, *(date for date in rendered if date != default)]


def _poolings(checkpoint: Checkpoint) -> list[str]:
    """Poolings that differ for a model: `last_non_pad` does where a pad token may come last."""
    pad = checkpoint.card.pad_token_id
    closing = checkpoint.template.around(_PROBE).suffix[-1:]
    if pad is None:
        return []
    return [kind for kind in POOLINGS if kind != "last_non_pad" or closing in ((), (pad,))]


def _has_newlines(template: ChatTemplate) -> bool:
    """Whether a conversation begins with line ends, directly or behind its BOS."""
    [text] = template.render(_PROBE, ["a"])
    return template.trimmed(text) != text


def _name(changed: Mapping[str, str]) -> str:
    """Name of a convention, and of its folder: `bos-none.dtype-float16`."""
    named = (f"{name}-{value}".lower() for name, value in changed.items())
    return ".".join(re.sub(r"[^a-z0-9_-]+", "-", one) for one in named)
