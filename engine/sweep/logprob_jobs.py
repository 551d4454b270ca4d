"""Log-probabilities (natural logarithms) under language models, into a run folder; their rewards.

A prompt has a form (`engine.text.cue`); its id in the run names the form where that is not the
plain one (`schema.prompt_in_form`).

Of the implicit rewards of two models (`engine.runs.implicit`) the log-probabilities of both are
results of the run, computed one model after the other; their difference is a result of rewards, of
one more model. It needs no device.
"""

import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import polars as pl
from jax.sharding import Mesh

from engine import processes
from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError, prefixed
from engine.runs import implicit, schema
from engine.runs.folder import RunFolder
from engine.runs.identity import Identity, Json
from engine.runs.result import Result, SelfCheck
from engine.scoring.conversations import ConversationReplies, conversation_names
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import check_finite, dtype_named
from engine.scoring.rows import ContinuationRows, NextTokenRows, Rows
from engine.settings import FORMS, ImplicitSettings, LogprobSettings, Settings, check_choice
from engine.sweep import loop, setup
from engine.sweep.jobs import RowsJob, identity_of
from engine.sweep.outcomes import OnOutcomes, OnRewards
from engine.sweep.setup import Items
from engine.text.cue import Cue
from engine.text.template_sandbox import Variables
from engine.text.unread import unread_keys
from engine.types import Prompt


def sweep_logprobs(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str] | None,
    run: str,
    settings: LogprobSettings,
    mesh: Mesh,
    *,
    items: Items | None = None,
    on_outcomes: OnOutcomes = lambda outcomes: None,
) -> int:
    """Log-probability of every token, or of each reply of the list `items`, after every prompt.

    Those of tokens go into `run/logprobs`. The softmax is over all rows of the embedding; rows that
    no token has are not written. Those of a list go into `run/item_logprobs/<name>`: the sum over
    the reply's tokens, each given the prompt and the tokens before it. `prompts` are None for a
    list of conversations, whose last replies go into `run/conversation_logprobs/<name>`.

    Returns:
      The number of log-probabilities that were computed; 0 if the run was complete.

    Raises:
      AssayError: bad input, the chat form of a model without a chat template, a result that the run
        holds with another identity, a number that is not finite, a failed self-check.
      SomeFailed: some models failed; the other models are complete.
    """
    form, given = settings.form, prompts or {}
    by_form = {schema.prompt_in_form(name, form): text for name, text in given.items()}
    asked = None if prompts is None else by_form
    folder = setup.open_run(run, checkpoints, asked, settings, mesh, LANGUAGE)
    tables = {} if items is None else setup.admit_list(folder, *items)
    jobs = [
        RowsJob(
            checkpoint=checkpoint,
            path=path,
            rows=rows,
            identity=identity_of(checkpoint, rows.prompt, settings, rows=len(rows)),
        )
        for checkpoint in checkpoints
        for path, rows in _rows_of(checkpoint, by_form, form, items)
    ]

    for job in jobs:
        setup.say_unread(job.checkpoint.card.slug, job.rows.unread)

    def load(group: Sequence[Checkpoint], step_size: int) -> LanguageScorer:
        restored = restore(group, mesh, dtype_named(settings.dtype))
        return LanguageScorer.build(*restored, mesh, step_size=step_size)

    return loop.run(folder, jobs, load, settings, mesh, on_outcomes=on_outcomes, tables=tables)


def _rows_of(
    checkpoint: Checkpoint, by_form: Mapping[str, str], form: str, items: Items | None
) -> Iterator[tuple[str, Rows]]:
    """The path of each result of a model, and its rows."""
    slug, (name, listed) = checkpoint.card.slug, items[:2] if items else ("", None)
    if isinstance(listed, pl.DataFrame):
        path = schema.conversation_logprobs_path(name, slug)
        yield path, conversation_replies(checkpoint, listed, form)
        return
    path_of = functools.partial(schema.item_logprobs_path, name) if items else schema.logprobs_path
    for prompt, text in by_form.items():
        yield path_of(slug, prompt), language_rows(checkpoint, text, form, listed)


def conversation_replies(
    checkpoint: Checkpoint, table: pl.DataFrame, form: str
) -> ConversationReplies:
    """The last replies of a list of conversations (`schema.LIST_COLUMNS`) behind their prompts.

    Raises AssayError, with the row, for what the form leaves unsaid, and for replies that are not
    text alone.
    """
    conversations, variables = schema.conversations(table)
    names, plain = conversation_names(table), form == "pretrained"
    unread = [] if plain else unread_keys(checkpoint.template, conversations, variables, names)
    replies = []
    for (*turns, reply), own, name in zip(conversations, variables, names, strict=True):
        with prefixed(name):
            unsaid = [*turns, reply, own] if plain else [reply]  # what the form leaves unsaid
            keys = {key for turn in unsaid for key, value in turn.items() if value}
            if more := sorted(keys - {"role", "content", *unread}):
                raise AssayError(
                    f"it has {', '.join(more)}, and probabilities in form={form!r} are of a "
                    "reply's text alone; remove it from the row"
                )
            alone = plain and [turn["role"] for turn in turns] == ["user"]
            cue = cue_of(checkpoint, turns[0]["content"] if alone else turns, form, own)
            replies.append(ContinuationRows(cue, [reply["content"]]))
            _ = replies[-1].ids  # of an empty reply: refused
    return ConversationReplies(replies, names, unread)


def language_rows(
    checkpoint: Checkpoint, prompt: Prompt, form: str, replies: Sequence[str] | None = None
) -> NextTokenRows | ContinuationRows:
    """Replies to a prompt, or every token as the next one."""
    cue = cue_of(checkpoint, prompt, form)
    if replies is not None:
        return ContinuationRows(cue, replies)
    return NextTokenRows(cue.prompt, checkpoint.token_ids)


def cue_of(
    checkpoint: Checkpoint,
    prompt: Prompt,
    form: str,
    variables: Variables = MappingProxyType({}),
) -> Cue:
    """A prompt as the checkpoint's tokenizer renders it in one of `engine.settings.FORMS`."""
    check_choice("form", form, FORMS)
    if form == "pretrained":
        return Cue.pretrained(checkpoint.tokenizer, prompt)
    if not checkpoint.tokenizer.chat_template:
        raise AssayError(
            f"form={form!r}: {checkpoint.card.slug} has no chat template; allowed: 'pretrained'"
        )
    return Cue.chat(checkpoint.template, prompt, variables)


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two language models as one reward model: β (log π - log π_ref)."""

    policy: Checkpoint  # whose probability counts for a reply
    reference: Checkpoint  # whose probability counts against it
    settings: ImplicitSettings  # the prompt's form, and β

    @property
    def slug(self) -> str:
        """The pair's name as a reward model."""
        return f"{self.policy.card.slug}-over-{self.reference.card.slug}"

    @property
    def checkpoints(self) -> tuple[Checkpoint, Checkpoint]:
        """Policy and reference."""
        return self.policy, self.reference

    @property
    def models(self) -> list[Checkpoint]:
        """Both language models, or the one that is given twice."""
        first, second = self.policy.card, self.reference.card
        same = (first.slug, first.checkpoint_hash) == (second.slug, second.checkpoint_hash)
        return [self.policy] if same else [self.policy, self.reference]

    @functools.cached_property
    def checkpoint_hash(self) -> str:
        """One hash of everything that can change a reward."""
        hashes = [self.policy.card.checkpoint_hash, self.reference.card.checkpoint_hash]
        return hashlib.sha256(
            json.dumps([*hashes, self.settings.form, float(self.settings.beta)]).encode()
        ).hexdigest()

    @property
    def entry(self) -> Json:
        """The pair among the models of a run."""
        policy, reference = self.policy.card, self.reference.card
        return {
            **setup.model_entry(policy),
            "source": f"{policy.slug} over {reference.slug}",
            "revision": None,
            "checkpoint_hash": self.checkpoint_hash,
            schema.PAIR: {
                "policy": {"slug": policy.slug, **setup.model_entry(policy)},
                "reference": {"slug": reference.slug, **setup.model_entry(reference)},
                "form": self.settings.form,
                "beta": float(self.settings.beta),
            },
        }

    def check(
        self, prompts: Mapping[str, Prompt], listed: Sequence[str] | pl.DataFrame = ()
    ) -> None:
        """Refuses models that would read other token ids, or have other candidates.

        `prompts` are texts or messages by id; `listed` are replies, or conversations
        (`schema.LIST_COLUMNS`).

        Raises:
          AssayError: a reward model; the chat form of a model without a chat template; tokens,
            prompts or replies that are not the same ids in both, with the first that differs.
        """
        checkpoints = self.checkpoints
        for checkpoint in checkpoints:
            checkpoint.expect(LANGUAGE)
        other_tokenizer = len({c.card.tokenizer_hash for c in checkpoints}) > 1
        if other_tokenizer:
            vocabularies = [c.tokenizer.convert_ids_to_tokens(c.token_ids) for c in checkpoints]
            tokens = [
                dict(zip(c.token_ids, t, strict=True))
                for c, t in zip(checkpoints, vocabularies, strict=True)
            ]
            self._expect_same("vocabulary", *tokens)
        if isinstance(listed, pl.DataFrame):
            of_both = [conversation_replies(c, listed, self.settings.form) for c in checkpoints]
            for name, *replies in zip(of_both[0].names, *(o.replies for o in of_both), strict=True):
                prefixes = (dict(enumerate(reply.prompt.prefix)) for reply in replies)
                self._expect_same(f"{name}, prompt", *prefixes)
                self._expect_same(name, *(dict(enumerate(reply.ids[0])) for reply in replies))
            return
        for prompt, text in prompts.items():
            cues = [cue_of(checkpoint, text, self.settings.form) for checkpoint in checkpoints]
            read = (dict(enumerate(cue.prompt.prefix)) for cue in cues)
            self._expect_same(f"prompt {prompt!r} in form={self.settings.form!r}", *read)
            if other_tokenizer and listed:
                of_both = [cue.replies(listed) for cue in cues]
                for reply, *ids in zip(listed, *of_both, strict=True):
                    self._expect_same(f"reply {reply!r}", *map(dict, map(enumerate, ids)))

    def _expect_same(self, what: str, *tokens: Mapping[int, object]) -> None:
        """Refuses two mappings from places to tokens, one of each model, that differ."""
        first, second = tokens
        differ = (i for i in sorted({*first, *second}) if first.get(i) != second.get(i))
        if (place := next(differ, None)) is not None:
            shown = [repr(of[place]) if place in of else "missing" for of in tokens]
            raise AssayError(
                f"{what}: token {place} is {shown[0]} in {self.policy.card.slug} and {shown[1]} in "
                f"{self.reference.card.slug}; allowed: two language models with one tokenizer, and "
                "in form='chat' with one chat template"
            )


def sweep_pair(
    pair: Pair,
    prompts: Mapping[str, str] | None,
    run: str,
    settings: Settings,
    mesh: Mesh,
    items: Items | None = None,
    *,
    on_rewards: OnRewards = lambda *result: None,
    on_outcomes: OnOutcomes = lambda outcomes: None,
) -> int:
    """Implicit rewards of every token, or of each reply of the list `items`, under every prompt.

    The log-probabilities of both models go where `sweep_logprobs` writes them, and their difference
    into `run/scores`, `run/items/<list>` or `run/conversations/<list>`; conversations have prompts
    of their own, and `prompts` is None. `on_rewards` and `on_outcomes` are as of
    `sweep_rewards`; `on_rewards` is called for vocabularies only.

    Returns:
      The number of rewards that were written; 0 if the run was complete.

    Raises:
      AssayError: what `Pair.check` and `sweep_logprobs` refuse; a pair of the same name with
        another form or factor, or other files of it, in the run.
      SomeFailed: one of the two models failed.
    """
    pair.check(prompts or {}, items[1] if items else ())
    _enter(pair, prompts, run, settings, mesh, items)  # refuses before the first pass
    how = LogprobSettings(form=pair.settings.form, **dataclasses.asdict(settings))
    sweep_logprobs(pair.models, prompts, run, how, mesh, items=items, on_outcomes=on_outcomes)
    folder, paths = _enter(pair, prompts, run, settings, mesh, items)
    if not processes.writes():
        return 0
    folder.save({})
    new = 0
    for path in paths:
        written, frame = _subtract(folder, pair, folder.results[path])
        if written and items is None:
            tokens = pair.policy.tokens
            token = pl.Series([tokens[i] for i in frame["token_id"]], dtype=pl.String)
            on_rewards(pair.slug, path.rpartition("=")[2], frame.with_columns(token=token), 0)
        new += written
    return new


def _enter(
    pair: Pair,
    prompts: Mapping[str, str] | None,
    run: str,
    settings: Settings,
    mesh: Mesh,
    items: Items | None,
) -> tuple[RunFolder, list[str]]:
    """The run with the pair and its results, and their paths; nothing is written."""
    form, given = pair.settings.form, prompts or {}
    in_form = {schema.prompt_in_form(name, form): text for name, text in given.items()}
    all_prompts = None if prompts is None else {**prompts, **in_form}
    folder = setup.open_run(run, pair.models, all_prompts, settings, mesh, LANGUAGE)
    schema.check_names([pair.slug])
    setup.admit_model(folder, pair.slug, pair.entry)
    path_of, mode, rows = schema.scores_path, "ids", len(pair.policy.token_ids)
    if items is not None:
        setup.admit_list(folder, *items)
        path_of, mode = functools.partial(schema.items_path, items[0]), "text"
        rows = len(items[1])
    prefixes = {
        path_of(pair.slug, prompt): (cue_of(pair.policy, text, form).prompt.prefix,)
        for prompt, text in given.items()
    }
    if items is not None and prompts is None:
        prefixes = {schema.conversations_path(items[0], pair.slug): ()}
    for path, prefix_ids in prefixes.items():
        identity = Identity(
            checkpoint_hash=pair.checkpoint_hash,
            mode=mode,
            form=form,
            dtype=settings.dtype,
            rows=rows,
            prefix_ids=prefix_ids,
        )
        setup.enter_result(folder, path, identity, settings.part_size)
    return folder, list(prefixes)


def _subtract(folder: RunFolder, pair: Pair, result: Result) -> tuple[int, pl.DataFrame]:
    """Writes the missing parts of a result; returns the number of new rows, and all rows."""
    inputs = implicit.inputs_of(folder, result.path)
    assert inputs is not None
    sources = [folder.results[path] for path in inputs]
    policy, reference = (pl.concat(source.frames()) for source in sources)
    result.environment, new = folder.environment, 0
    for start, stop in result.missing:
        began, rows = time.perf_counter(), slice(start, stop)
        frame = implicit.rewards(policy[rows], reference[rows], pair.settings.beta)
        key, ids = frame.columns[0], frame.to_series(0).to_list()
        check_finite(pair.slug, key, start, ["reward"], frame["reward"].to_numpy()[None], ids)
        seconds = time.perf_counter() - began
        result.write(schema.part_name(start, stop), frame, folder.way, seconds)
        new += len(frame)
    if not result.complete:
        result.self_check = _self_check(sources, pair.settings.beta)
        result.save()
    return new, pl.concat(result.frames())


def _self_check(inputs: Sequence[Result], beta: float) -> SelfCheck:
    """How far sampled rewards may be from those of the plain passes, which have the same sample.

    The differences and tolerances of both log-probabilities are added, and multiplied by β.
    """
    first, second = checks = [r.self_check for r in inputs if r.self_check is not None]
    return SelfCheck(
        candidates=min(check.candidates for check in checks),
        max_abs_difference=beta * (first.max_abs_difference + second.max_abs_difference),
        relative_difference=max(check.relative_difference for check in checks),
        tolerance=beta * (first.tolerance + second.tolerance),
        dtype=first.dtype,
        compared=schema.PAIR_OF,
        of=(first, second),
    )
