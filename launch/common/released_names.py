"""What released files call models and prompts, and what a run calls them."""

import re
from typing import NamedTuple

from configs import known_models, prompts
from engine.errors import AssayError
from launch.common.inputs import prompt_id

PROMPT_ALLOWED = (
    f"a prompt's text, which ends in '.', '?', '!' or ':', or an id: "
    f"{', '.join([*prompts.PAPER, *prompts.ELO])}, {next(iter(prompts.FOLLOW_UP))}, … "
    "(configs/prompts.py)"
)


class Prompt(NamedTuple):
    """A prompt of a run: its id and its text."""

    id: str
    text: str


def model_id(name: str) -> str:
    """Id of a model as a file or column names it: `owner--name` is `owner/name`.

    A published model (configs/known_models.py) is also found by its nickname, by its name without
    the owner, and at the end of a name such as `big2_rewards_Ray2333_GRM-gemma2-2B-rewardmodel-ft`.
    """
    name = name.strip().rstrip("/")
    if "/" not in name:
        name = name.replace("--", "/", 1)
    spec = known_models.find(name) or _KNOWN.get(name.lower()) or _at_the_end(name.lower())
    return spec.hub_id if spec else name


def slugged(name: str) -> str:
    """Slug of a model id or file name: its last part in lower case, without unsafe characters."""
    last = name.rstrip("/").rsplit("/")[-1].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")


def known_prompt(name: str) -> Prompt | None:
    """The prompt of configs/prompts.py that a file, column or flag names; None if it names none.

    It may be named by its id, by its name in the authors' release, or by its text with or without
    the question mark, which the authors' file names lack.
    """
    name = name.strip()
    key = prompts.RELEASED.get(name, name)
    if key in prompts.PROMPTS:
        return Prompt(key, prompts.PROMPTS[key])
    texts = (text for text in prompts.PROMPTS.values() if name in (text, text.removesuffix("?")))
    text = next(texts, None)
    return None if text is None else Prompt(prompt_id(text), text)


def named_prompt(name: str) -> Prompt | None:
    """As `known_prompt`, but a text may be anybody's own: it has a space and ends like one."""
    own = re.search(r"\s", name.strip()) and re.search(r"[.?!:]\s*$", name)
    return known_prompt(name) or (Prompt(prompt_id(name), name) if own else None)


def flag_prompt(given: str) -> Prompt | None:
    """The prompt of `--prompt`; None where the flag was not given.

    Raises:
      AssayError: it is neither a prompt's text nor an id.
    """
    if not given:
        return None
    prompt = named_prompt(given)
    if prompt is None:
        raise AssayError(f"--prompt={given!r}; allowed: {PROMPT_ALLOWED}")
    return prompt


def _at_the_end(name: str) -> known_models.ModelSpec | None:
    """The published model whose `owner_name` ends a name in lower case."""
    specs = known_models.KNOWN.values()
    ends = ((spec, spec.hub_id.lower().replace("/", "_")) for spec in specs)
    return next((spec for spec, end in ends if re.search(rf"(^|_){re.escape(end)}$", name)), None)


_KNOWN = {spec.nickname.lower(): spec for spec in known_models.KNOWN.values()}
