"""The models and prompts of one search: a list of one model, or several with one sequence for all.

Models that share the first one's vocabulary take its token ids. A model of another tokenizer reads
the text, and gives no gradient: how many tokens a reply has there is bounded before a model is
loaded, since each token of the search may become many.
"""

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.search.objective import RoundTrip, SearchObjective
from engine.settings import STEP_METHODS, SearchSettings
from engine.types import PromptIds

RULES = ("mean", "minimum")
_ADDED = 512  # tokens that one of two vocabularies may have behind the other's: added ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """A model of another tokenizer, which reads the replies of a universal search as texts.

    Attributes:
      checkpoint: the model.
      differs: in which token its vocabulary differs from the first model's.
      prompts: prompt id -> split by its template.
      most: tokens that a reply has there at most.
      usual: tokens of a reply of random tokens.
    """

    checkpoint: Checkpoint
    differs: str
    prompts: Mapping[str, PromptIds]
    most: int
    usual: int

    @classmethod
    def build(
        cls,
        checkpoint: Checkpoint,
        differs: str,
        prompts: Mapping[str, str],
        whole: SearchObjective,
    ) -> "Reader":
        """Counts the tokens of the replies that `whole` searches.

        Where two tokens' texts meet, the other tokenizer may split them differently, which adds
        less than one token per text (docs/search.md), so `most` adds one to the longest text.

        Raises:
          AssayError: a conversation may be longer than the model was made for.
        """
        template, length = checkpoint.template, whole.settings.length
        given = whole.initial()[0] if whole.settings.initial else ()  # fixed ones pass no filter
        used = np.union1d(np.flatnonzero(whole.allowed), given).astype(int)
        texts = [whole.round_trip.text([i]) for i in used]
        encoded = template.tokenizer(texts, add_special_tokens=False)
        counts = [len(ids) for ids in encoded["input_ids"]]
        most, allowed = 1 + max(counts), checkpoint.card.decoder.max_positions
        splits = {prompt_id: template.around(text) for prompt_id, text in prompts.items()}
        around = max(len(split.prefix) + len(split.suffix) for split in splits.values())
        if (longest := around + length * most) > allowed:
            raise AssayError(
                f"model {checkpoint.card.slug!r}: a conversation with a reply of {length} tokens "
                f"as texts, up to {most} tokens each, has up to {longest} tokens; allowed by the "
                f"model: {allowed}"
            )
        return cls(
            checkpoint=checkpoint,
            differs=differs,
            prompts=splits,
            most=length * most,
            usual=math.ceil(length * float(np.mean(counts))),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """The models and prompts of one search: one model, or several by the rule of a universal one.

    Attributes:
      rule: one of `RULES`; "" without standardisation, of one model by the mean of its prompts.
      models: in the order of `each`.
      prompts: prompt id -> text.
      whole: the tokens and texts that all models admit; of one model its objective.
      each: of each model what it maximises, or how it reads texts.
    """

    rule: str
    models: Sequence[Checkpoint]
    prompts: Mapping[str, str]
    whole: SearchObjective
    each: Sequence[SearchObjective | Reader]

    @classmethod
    def build(
        cls,
        models: Sequence[Checkpoint],
        prompts: Mapping[str, str],
        frames: Mapping[str, pl.DataFrame],
        settings: SearchSettings,
        rule: str = "",
    ) -> "SearchProblem":
        """The problem of one model, or with a rule of several; `frames` by tokenizer hash.

        The order of the models behind the first, and of the prompts, changes nothing.

        Raises:
          AssayError: settings, prompts and models do not fit each other.
        """
        if rule:
            _check_universal(settings, rule, len(models) * len(prompts))
            prompts = dict(sorted(prompts.items(), key=lambda one: one[::-1]))
        first = models[0].tokens
        models = sorted(models, key=lambda one: (one.card.checkpoint_hash, one.card.slug))
        differs = [vocabulary_difference(first, model.tokens) for model in models]
        objectives = {}
        for i, model in enumerate(models):
            if not differs[i]:
                splits = [model.template.split(text) for text in prompts.values()]
                frame = frames[model.card.tokenizer_hash]
                objectives[i] = SearchObjective.build(model, splits, frame, settings)
        known = list(objectives.values())
        whole = _joined(known) if rule else known[0]
        each = [
            objectives[i] if not how else Reader.build(model, how, prompts, whole)
            for i, (model, how) in enumerate(zip(models, differs, strict=True))
        ]
        return cls(rule=rule, models=models, prompts=prompts, whole=whole, each=each)

    @property
    def objectives(self) -> list[SearchObjective]:
        """Those of the models that take token ids."""
        return [one for one in self.each if isinstance(one, SearchObjective)]

    @property
    def readers(self) -> list[Reader]:
        """The models that read texts."""
        return [one for one in self.each if isinstance(one, Reader)]

    @property
    def group(self) -> str:
        """A hash of rule, models and prompts, whatever their order."""
        ids = [(o.checkpoint_hash, [list(p.prefix) for p in o.prompts]) for o in self.objectives]
        texts = [
            (r.checkpoint.card.checkpoint_hash, [list(p.prefix) for p in r.prompts.values()])
            for r in self.readers
        ]
        kinds = [sorted([h, sorted(p)] for h, p in kind) for kind in (ids, texts) if kind]
        return hashlib.sha256(json.dumps([self.rule, *kinds]).encode()).hexdigest()[:8]

    def with_settings(self, settings: SearchSettings) -> "SearchProblem":
        """The same problem with other settings."""

        def changed(one: SearchObjective) -> SearchObjective:
            return dataclasses.replace(one, settings=settings)

        each = [changed(one) if isinstance(one, SearchObjective) else one for one in self.each]
        return dataclasses.replace(self, whole=changed(self.whole), each=each)

    def announce(self) -> None:
        """Says on standard error which models read texts, and why; on process 0."""
        for reader in self.readers if processes.writes() else ():
            slug = reader.checkpoint.card.slug
            line = f"model {slug}: {reader.differs}: it reads texts: no gradient, no file"
            tqdm.write(line, file=sys.stderr)


def _check_universal(settings: SearchSettings, rule: str, judges: int) -> None:
    """Raises AssayError for a universal search of one judge, or with settings it has not."""
    if rule not in RULES:
        raise AssayError(f"universal={rule!r}; allowed: {', '.join(map(repr, RULES))}")
    if judges < 2:
        raise AssayError(
            f"universal={rule!r} with one model and one prompt; allowed: several prompts or models"
        )
    if settings.method not in STEP_METHODS:
        allowed = ", ".join(map(repr, STEP_METHODS))
        raise AssayError(f"method={settings.method!r}; allowed in a universal search: {allowed}")
    for name in ("target", "wrong_sign", "distance", "certify"):
        if value := getattr(settings, name):
            raise AssayError(f"{name}={value!r}; allowed in a universal search: {type(value)()!r}")


def vocabulary_difference(known: Mapping[int, str], tokens: Mapping[int, str]) -> str:
    """The first token in which a vocabulary differs from a known one; "" if by few added tokens."""
    for i, text in known.items():
        if tokens.get(i, text) != text:
            return f"token {i} is {tokens[i]!r}, not {text!r}"
    if len(known.keys() ^ tokens.keys()) > _ADDED:
        return f"it has {len(tokens)} tokens, not {len(known)}"
    return ""


def _joined(objectives: Sequence[SearchObjective]) -> SearchObjective:
    """The tokens and texts that all models of one vocabulary admit, as one objective."""
    first = objectives[0]
    rows = min(len(objective.allowed) for objective in objectives)
    allowed = np.logical_and.reduce([objective.allowed[:rows] for objective in objectives])
    if allowed.sum() < first.settings.topk:
        raise AssayError(
            f"topk={first.settings.topk}; the filters of all models leave {allowed.sum()} tokens: "
            "allowed at most that"
        )
    hashes = [objective.checkpoint_hash for objective in objectives]
    whole = dataclasses.replace(
        first,
        allowed=allowed,
        checkpoint_hash=hashlib.sha256(json.dumps(hashes).encode()).hexdigest(),
        round_trip=RoundTrip([c for o in objectives for c in o.round_trip.conversations]),
    )
    whole.initial()
    return whole
