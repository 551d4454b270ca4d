"""The settings of every command: each is stated once, with its type, its default and its meaning.

`launch.common.config` makes the ConfigDict of a command from these classes, and `--help` prints
what each field means. The engine and the analysis take instances, which check themselves. A field
whose value on the command line has another form than in an instance (a word such as `auto`, a
file's path) states its default there too.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from engine.errors import AssayError

DTYPES = ("bfloat16", "float16", "float32")
MODES = ("ids", "text")
POOLINGS = ("last", "last_non_pad", "first_pad")
AUTO = "auto"  # the mode and the pooling that fit the model
OBJECTIVES = ("none", "values")  # columns of a result beside the reward: none; one per objective
FORMS = ("pretrained", "chat")  # of a language model's prompt
DIRECTIONS = {"max": 1, "min": -1}
METHODS = ("gcg", "paper", "random")  # of searches

_NONE: Any = dataclasses.MISSING
_DTYPE = (
    "Precision of the decoder: float32, bfloat16, float16, or `auto` (float32 on a CPU; elsewhere "
    "float16 for a model stored in float16, and bfloat16 for all others)."
)


# Any: defaults are of several types.
def setting(
    text: str,
    default: Any = _NONE,
    *,
    command: Any = _NONE,
    like: str = "",
    identity: bool = True,
) -> Any:
    """A field of a settings class.

    Args:
      text: what it means, for `--help`.
      default: of an instance; a field without one must be given.
      command: the default on the command line, where its form differs; None: a method's default.
      like: the command whose settings it holds, which `--help` names instead of listing them.
      identity: whether it changes what the numbers of a result mean (`settings_identity`); such a
        field of a sweep has one of its name in `engine.runs.identity.Identity`.
    """
    shown = default if command is _NONE else command
    meaning = f"{text}; `{like} --help` lists them." if like else text
    return dataclasses.field(
        default=default,
        metadata={"help": meaning, "command": shown, "like": like, "identity": identity},
    )


# Any: settings are of several types.
def settings_identity(settings: Any) -> dict[str, Any]:
    """The settings that decide what a result means; results that differ in one never mix."""
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.metadata["identity"]
    }


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raises AssayError for a value that is not one of those allowed."""
    if value not in allowed:
        raise AssayError(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}")


def check_integer(name: str, value: object, least: int) -> None:
    """Raises AssayError for what is no integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AssayError(f"{name}={value!r}; allowed: integers >= {least}")


def is_number(value: object) -> bool:
    """Whether a value is an integer or a float."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_switch(name: str, value: object) -> None:
    """Raises AssayError for what is neither True nor False."""
    if type(value) is not bool:
        raise AssayError(f"{name}={value!r}; allowed: True, False")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshSettings:
    """The device mesh."""

    model: int = setting("Devices per copy of a model; further devices score other rows.", 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadingSettings:
    """How a command opens checkpoints and places models."""

    verify: bool = setting("Compare a checkpoint's files with the hashes in model.json.", True)
    mesh: MeshSettings = setting("The device mesh.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptSettings:
    """The prompts of a command."""

    prompts: str = setting(
        "Known prompts (configs/prompts.py), comma-separated: ids such as `greatest`, or the sets "
        "`paper` (3), `elo` (2), `follow_up` (54).",
        "paper",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AfterSettings:
    """Which replies of --after_items are reply starts."""

    of: str = setting("Of pairs, the replies to take: `chosen`, `rejected` or `both`.", "chosen")
    rows: int = setting("Number of rows that are drawn, with --config.seed.", 8)

    def __post_init__(self) -> None:
        check_choice("after.of", self.of, ("chosen", "rejected", "both"))
        check_integer("after.rows", self.rows, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplyStartSettings:
    """What commands take that sweep behind replies."""

    after: AfterSettings = setting("Replies of --after_items.", AfterSettings())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How results are computed. Their identity holds the dtype; sizes are recorded."""

    dtype: str = setting(_DTYPE, command="auto")
    step_size: int | None = setting(
        "Candidates per step on each device, or `auto` (that of the model's earlier results in the "
        "run; else 2048 on a GPU, 1024 elsewhere, 256 of an encoder on a CPU, fewer if memory is "
        "short).",
        command="auto",
        identity=False,
    )
    check_memory: bool = setting(
        "Refuse a model that is larger than the free memory.", True, identity=False
    )
    part_size: int = setting(
        "Rows per part of a new result; at most two parts are recomputed after a kill.",
        16384,
        identity=False,
    )
    self_check: int = setting(
        "Rows per result that are checked with a plain full pass.", 16, identity=False
    )
    seed: int = setting("Seed for drawing the rows of the self-check.", 0, identity=False)

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        for name, least in (("step_size", 1), ("part_size", 1), ("self_check", 1), ("seed", 0)):
            value = getattr(self, name)
            if not (name == "step_size" and value is None):
                check_integer(name, value, least)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings(Settings):
    """How rewards are computed. The settings here are part of a result's identity."""

    mode: str = setting(
        "How a reply becomes token ids. `ids`: its ids between the template's. `text`: its text in "
        "the template, tokenised as a whole, as in the paper. `auto`: `ids`, or `text` if the "
        "template cannot be cut around the reply.",
        "auto",
    )
    pooling: str = setting(
        "Position whose hidden state gives the reward: `last`; `last_non_pad`, as in transformers "
        "since 4.50; `first_pad`, the one before the first pad token, as in the paper; `auto`, as "
        "stored in the checkpoint.",
        "auto",
    )
    objectives: str = setting(
        "Columns beside the reward: `none`; `values`, one per objective (only ArmoRM, URM and QRM "
        "have any).",
        "none",
    )
    lens: bool = setting(
        "Also store the reward after every layer: final norm and head applied to its hidden state, "
        "in the same pass (docs/lens.md). Part files grow by the number of layers.",
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mode", self.mode, (AUTO, *MODES))
        check_choice("pooling", self.pooling, (AUTO, *POOLINGS))
        check_choice("objectives", self.objectives, OBJECTIVES)
        check_switch("lens", self.lens)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogprobSettings(Settings):
    """How log-probabilities are computed. `form` is part of a result's identity."""

    form: str = setting(
        "How a language model gets the prompt: `pretrained` (plain text) or `chat` (its template).",
        "pretrained",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("form", self.form, FORMS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImplicitSettings:
    """How two language models make a reward (`--reward-of`)."""

    form: str = setting(
        "With --reward-of: how both language models get the prompt: `chat` (in the chat template) "
        "or `pretrained` (as plain text).",
        "chat",
    )
    beta: float = setting(
        "With --reward-of: the factor β of log π - log π_ref. 1 gives nats; DPO often trains with "
        ".1. Ranks do not depend on it.",
        1.0,
    )

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        if not (is_number(self.beta) and math.isfinite(self.beta) and self.beta > 0):
            raise AssayError(f"beta={self.beta!r}; allowed: finite numbers > 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings of a search; its result depends on all but `every`.

    `of` gives the fields that are left out the defaults of their method.
    """

    method: str = setting("gcg, paper (Faster-GCG, as in the paper) or random.", "gcg")
    direction: str = setting("Search highest rewards (max), lowest (min), or both.", command="both")
    length: int = setting("Tokens of the reply.", 8)
    steps: int = setting("Steps; each scores `candidates` replies per restart.", 500)
    candidates: int = setting("Replies scored per step and restart.", 64)
    topk: int = setting("Largest number of tokens proposed per position.", 256)
    restarts: int = setting("Searches per direction, run side by side.", 1)
    buffer: int = setting(
        "Sequences kept between steps: for gcg and paper the latest, not tried again; for random "
        "the best. By default 1 for gcg, else 8.",
        1,
        command=None,
    )
    ascii_only: bool = setting("Use only tokens of printable ASCII.", True)
    specials: bool = setting("Also use special tokens.", False)
    allow: tuple[str, ...] = setting("File of the only tokens to use, one a line.", (), command="")
    round_trip: bool = setting("Keep only sequences whose text tokenises back to them.", True)
    every: int = setting("Steps after which the search is saved.", 10, identity=False)
    dtype: str = setting(_DTYPE, command="auto")
    seed: int = setting("Seed of the search.", 0)

    # Any: settings are of several types, which the constructor checks.
    @classmethod
    def of(cls, **given: Any) -> "SearchSettings":
        """Settings in which what is missing or None has the default of its method."""
        stated = {name: value for name, value in given.items() if value is not None}
        is_gcg = stated.get("method", cls.method) == cls.method
        return cls(**({"buffer": cls.buffer if is_gcg else 8} | stated))

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("method", self.method, METHODS)
        check_choice("direction", self.direction, (*DIRECTIONS, "both"))
        for name in (field.name for field in dataclasses.fields(self) if field.type is int):
            check_integer(name, getattr(self, name), 0 if name == "seed" else 1)
        if not isinstance(self.allow, Sequence):
            raise AssayError(f"allow={self.allow!r}; allowed: texts")

    @property
    def takes_gradient(self) -> bool:
        """Whether a step takes the gradient of its parent's reward."""
        return self.method != "random"

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions that are searched."""
        return tuple(DIRECTIONS) if self.direction == "both" else (self.direction,)

    def of_compiled_step(self) -> "SearchSettings":
        """These settings with every field that no compiled step reads set to a fixed value.

        Searches for which the results are equal share one compiled step.
        """
        read = ("method", "length", "candidates", "topk")
        given = {name: getattr(self, name) for name in read}
        return SearchSettings(direction="max", dtype="float32", **given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchCommandSettings(PromptSettings):
    """What a search's command takes beside `SearchSettings`."""

    certify: bool = setting("Also score every swap of one token in the replies found.", False)
    check_memory: bool = setting("Refuse a model that is larger than the free memory.", True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertSettings:
    """How a Hugging Face folder becomes a checkpoint."""

    slug: str = setting("The model's name in runs; by default the last part of the source.", "")
    bos: str = setting(
        "BOS tokens before the prompt: template (as it writes), none, single, or double (as in the "
        "paper); empty: as `assay models` says, else template.",
        "",
    )
    date: str = setting(
        "Date for templates that print one, such as 2024-07-26; by default as `assay models` says; "
        "if the template asks for today's, 26 Jul 2024 (Llama) or the day of conversion (UTC).",
        "",
    )
    head: str = setting("Another convention for the head: urm-helpfulness (as in the paper).", "")
    reward: str = setting(
        "Which output is the reward, if the head has several: a row's number or name, or a "
        "difference such as `1 - 0`; for a language model a token, or two, such as `yes - no`.",
        "",
    )
    template: str = setting(
        "Chat template instead of the folder's: a Jinja file; trl (prompt, reply and eos, as TRL "
        "renders plain texts); raw (the same without eos); or a name, if the folder has several.",
        "",
    )
    template_vars: str = setting(
        "What the template reads beside the conversation: <name>=<text>, comma-separated.", ""
    )
    softcap: bool = setting("Gemma 2's attention soft-cap; the paper's library had none.", True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """How models that are no checkpoints are converted, and where the result is kept."""

    cache: str = setting(
        "Folder of converted models; by default models/ in $ASSAY_CACHE or ~/.cache/assay.", ""
    )
    base: str = setting("Folder or hub id of an adapter's base, instead of the one it names.", "")
    convert: ConvertSettings = setting(
        "Settings of conversion", ConvertSettings(), like="assay convert"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """What is known of a published model: how it is converted, and what its files must hold."""

    hub_id: str
    dtype: str  # of the published weights, as far as known; a conversion reports a difference
    revision: str | None = None
    # How the model was trained, or what its card says: one BOS, from the template or put in front
    # of it, or two (the GRMs). The paper's own pipeline always added a second BOS:
    # `--config.bos=double`.
    bos: str = "template"
    date: str = ""
    # Kind of the head (`HeadConfig.kind`), "" for a language model; a conversion that finds another
    # kind is refused.
    head: str = ""
    # Which token's logit is the reward, of one that is published as a language model
    # (`ConvertSettings.reward`).
    reward: str = ""
    # Bytes of all tensors in the repository, if stated somewhere; a conversion that reads another
    # number is refused.
    tensor_bytes: int | None = None
    rows: int | None = None  # of the embedding, where known; some have more than ids, for padding

    @property
    def slug(self) -> str:
        """The model's name in runs."""
        return self.hub_id.rsplit("/", 1)[1].lower()

    def config_json(self) -> dict[str, Any]:  # Any: what JSON holds
        """What decides the decoder: attributes of its config.json, and its class.

        Special tokens are left out, and some published embeddings have one row more.
        """
        raise NotImplementedError
