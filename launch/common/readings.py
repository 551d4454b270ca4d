"""Readings of a model: every reasonable way to show it a conversation and take its reward.

A reading is a value for each of `DIMENSIONS`. The default reading is the checkpoint's own policy
under the settings of the command; the others differ from it in one dimension, or in any number.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs.readings import DEFAULT
from engine.scoring.reward_passes import dtype_named
from engine.settings import AUTO, MODES, POOLINGS, check_choice
from engine.sweep.rewards import mode_of, pooling_of
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from launch.common.spelling import nearest

# Dates that are no date: the template's own, and an empty one.
OWN_DATE, NO_DATE = "template", "empty"
_URM = ("urm", "urm-helpfulness")
_PROBE = "What?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to read a model.

    Attributes:
      bos: as `TemplatePolicy.bos`.
      date: the date for a template that prints one; `OWN_DATE` or `NO_DATE`.
      newlines: as `TemplatePolicy.newlines`.
      mode: how a reply becomes token ids, `ids` or `text`.
      pooling: where the reward is read: a kind of `engine.scoring.rows.Pooling`.
      head: kind of the head: of URM's two published readings, one.
      softcap: `on` or `off`; `none` for a model without a soft-cap of attention.
      dtype: of the decoder.
    """

    bos: str
    date: str
    newlines: str
    mode: str
    pooling: str
    head: str
    softcap: str
    dtype: str

    @property
    def weights(self) -> tuple[str, str, str]:
        """What decides which parameters are on the devices: readings with equal ones share them."""
        return self.head, self.softcap, self.dtype

    @property
    def policy(self) -> TemplatePolicy:
        """How a conversation becomes token ids."""
        date = {OWN_DATE: None, NO_DATE: ""}.get(self.date, self.date)
        return TemplatePolicy(bos=self.bos, date=date, newlines=self.newlines)


DIMENSIONS = tuple(field.name for field in dataclasses.fields(Reading))
Values = Mapping[str, Sequence[str]]  # dimension -> its values, the default one first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What is tried beside the default reading.

    Attributes:
      dimensions: names of `DIMENSIONS`; others keep their default value.
      mode: of the default reading.
      pooling: of the default reading.
      dtype: of the default reading.
      dtypes: that are tried.
      dates: that are tried beside the checkpoint's and the template's own.
    """

    dimensions: Sequence[str]
    mode: str
    pooling: str
    dtype: str
    dtypes: Sequence[str]
    dates: Sequence[str]

    def __post_init__(self) -> None:
        check_known(self.dimensions)
        check_choice("mode", self.mode, (AUTO, *MODES))
        check_choice("pooling", self.pooling, (AUTO, *POOLINGS))
        for dtype in (self.dtype, *self.dtypes):
            dtype_named(dtype)


def check_known(dimensions: Sequence[str]) -> None:
    """Refuses a name that is not among `DIMENSIONS`."""
    for name in dimensions:
        if name not in DIMENSIONS:
            allowed = ", ".join(DIMENSIONS)
            raise AssayError(f"dimensions={name!r}{nearest(name, DIMENSIONS)}; allowed: {allowed}")


def listed(text: str) -> tuple[str, ...]:
    """The pieces of a comma-separated setting, without what is empty."""
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def values_of(checkpoint: Checkpoint, choices: Choices) -> Values:
    """The values of every dimension that the model allows, the default one first.

    A model without a soft-cap, or a template that prints no date, has one value there.
    """
    card, template = checkpoint.card, checkpoint.template
    policy = card.policy
    has_bos = template.tokenizer.bos_token_id is not None
    head = card.head.kind
    mode = mode_of(checkpoint, [_PROBE], choices.mode)
    pooling = pooling_of(checkpoint, choices.pooling).kind
    capped = card.decoder.attention_softcap is not None
    found = {
        "bos": [policy.bos, *(("none", "single") if has_bos else ()), "double"],
        "date": _dates(template, choices.dates),
        "newlines": [policy.newlines, *(("keep", "trim") if _has_newlines(template) else ())],
        "mode": [mode, *(MODES if template.cuttable(_PROBE) else ())],
        "pooling": [pooling, *_poolings(checkpoint)],
        "head": [head, *(_URM if head in _URM else ())],
        "softcap": ["on", "off"] if capped else ["none"],
        "dtype": [choices.dtype, *choices.dtypes],
    }
    kept = {name: list(dict.fromkeys(values)) for name, values in found.items()}
    return {name: own if name in choices.dimensions else own[:1] for name, own in kept.items()}


def based_on(values: Values, base: Mapping[str, str]) -> Values:
    """The same values with others as the default ones, where the model allows them.

    Args:
      values: of a model.
      base: dimension -> its value in the default reading; dimensions left out keep theirs.
    """
    first = {name: base[name] for name in base if base[name] in values[name]}
    return {
        name: [first[name], *(v for v in own if v != first[name])] if name in first else own
        for name, own in values.items()
    }


def check_dimensions(asked: Sequence[str], every: Sequence[Values]) -> None:
    """Refuses dimensions that were asked for by name and that no model has.

    Args:
      asked: names of dimensions.
      every: the values of each model.
    """
    for name in asked:
        if not any(len(values[name]) > 1 for values in every):
            have = [n for n in DIMENSIONS if any(len(values[n]) > 1 for values in every)]
            raise AssayError(
                f"dimensions={name!r}: the models allow one value of it only; allowed for them: "
                f"{', '.join(have) or 'none'}"
            )


def readings_of(values: Values, *, all_combinations: bool) -> dict[str, Reading]:
    """Name -> reading: the default one, then each other value alone, or all combinations.

    Raises:
      AssayError: two of them have one name.
    """
    default = {name: own[0] for name, own in values.items()}
    if all_combinations:
        cells = itertools.product(*values.values())
        every = [dict(zip(values, own, strict=True)) for own in cells]
    else:
        every = [default | {name: v} for name, own in values.items() for v in own[1:]]
    found = {DEFAULT: Reading(**default)}
    for own in every:
        changed = {name: value for name, value in own.items() if value != default[name]}
        name = _name(changed) or DEFAULT
        if found.setdefault(name, Reading(**own)) != Reading(**own):
            raise AssayError(
                f"two readings have the name {name!r}, one of them {changed}; allowed: values that "
                "differ in letters or digits"
            )
    return found


def reread(checkpoint: Checkpoint, reading: Reading) -> Checkpoint:
    """The same weights under a changed card; nothing that changes affects the parameters."""
    card = checkpoint.card
    decoder = card.decoder
    if reading.softcap == "off":
        decoder = dataclasses.replace(decoder, attention_softcap=None)
    head = dataclasses.replace(card.head, kind=reading.head)
    card = dataclasses.replace(card, decoder=decoder, head=head, policy=reading.policy)
    return dataclasses.replace(checkpoint, card=card)


def _dates(template: ChatTemplate, dates: Sequence[str]) -> list[str]:
    """The template's date, then those that change what it renders."""
    own = template.policy.date
    default = {None: OWN_DATE, "": NO_DATE}.get(own, own) or OWN_DATE
    # A template that asks for today's date has none of its own: it is refused below.
    tried = [default, *dates, OWN_DATE, NO_DATE]
    named = {OWN_DATE: None, NO_DATE: ""}
    rendered: dict[str, str] = {}
    for date in dict.fromkeys(tried):
        policy = dataclasses.replace(template.policy, date=named.get(date, date))
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
    """Name of a reading, and of its folder: `bos-none.dtype-float16`."""
    named = (f"{name}-{value}".lower() for name, value in changed.items())
    return ".".join(re.sub(r"[^a-z0-9_-]+", "-", one) for one in named)
