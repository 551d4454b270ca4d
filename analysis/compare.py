"""Two models compared: what changed between two runs, token by token, with a verdict.

before, after = analysis.load("runs/step-1000"), analysis.load("runs/step-2000")
analysis.diff(before, after, "reports/diff").verdict.summary
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from analysis import report as reports
from analysis.chapters import CHAPTERS
from analysis.chapters.changes import changes_between
from analysis.measures.two_models import (
    AFTER,
    BEFORE,
    Side,
    language_models,
    left_out,
    matching,
    scored,
    side_of,
    two_models,
)
from analysis.report import verdict as verdicts
from analysis.run import Run
from analysis.settings import AnalyzeSettings, Limits
from analysis.study import compute
from engine.errors import AssayError
from engine.runs.identity import Identity


class Difference(NamedTuple):
    """What changed between two models."""

    verdict: verdicts.Verdict
    page: str  # path of the report; "" where none was asked for
    left_out: str  # tokens that only one of them has, in words; "" where there are none


def diff(
    before: Run,
    after: Run,
    report: str | os.PathLike[str] | None = None,
    *,
    models: tuple[str, str] = ("", ""),
    prompts: Sequence[str] = (),
    noise: Sequence[Run] = (),
    pairs: str = "",
    probes: bool = False,
    limits: Limits | None = None,
    settings: AnalyzeSettings | None = None,
) -> Difference:
    """Compares two models, each of a run, and writes a report where a folder is named.

    Args:
      before: the run of the first model, or a run that holds it.
      after: that of the second.
      report: folder to write.
      models: slugs of the two models; "": the only one of its run.
      prompts: ids of those that are compared; none: all, and both runs then have the same.
      noise: other sweeps of one of the two models (dtype, step size, mesh).
      pairs: name of a list of pairs that both models scored; "" for none.
      probes: whether both also scored its edited replies, on which there is a limit then.
      limits: what the two may differ by; None: as `assay diff` has them.
      settings: of the report; None: as `assay analyze` has them.

    Raises:
      AssayError: runs that cannot be compared, or a sweep of neither model as noise.
    """
    limits, settings = limits or Limits(), settings or AnalyzeSettings()
    runs = {BEFORE: before, AFTER: after}
    run = two_models(before, after, prompts, models)
    sides = {side: side_of(runs[side], slug, side) for side, slug in zip(runs, models, strict=True)}
    check_limits(limits, sides, list(run.prompts))
    noise_pairs = list[tuple[str, Run]]()
    for other in noise:
        name = f"noise={other.folders[0]}"
        of, slug, under = noise_of(other, sides, runs, [*run.prompts], name)
        pair = two_models(runs[of], other, under, (sides[of].slug, slug))
        results = [pair.results[side, next(iter(pair.prompts))] for side in runs]
        dtypes = " and ".join(r.identity.dtype or "an unknown dtype" for r in results)
        noise_pairs.append((f"noise: {of} in {dtypes} ({other.folders[0].name})", pair))
    chapter = changes_between(limits=limits, noise=noise_pairs, pairs=pairs, probes=probes)
    verdict = verdicts.of(compute(run, {}, settings, [chapter]))
    assert verdict is not None
    page = ""
    if report is not None:
        # The other chapters are about rewards.
        chapters = [chapter] if language_models(run) else [chapter, *CHAPTERS]
        page = str(reports.write_report(run, report, {}, settings, chapters=chapters))
    return Difference(verdict, page, left_out(run))


def check_limits(limits: Limits, sides: Mapping[str, Side], prompts: Sequence[str]) -> None:
    """Raises AssayError where the two ends of a limit would overlap under a prompt."""
    before, after = sides[BEFORE], sides[AFTER]
    for prompt in prompts:
        ids = before.prompts[prompt].ids.tolist()
        limits.check_ends(prompt, sum(i in before.tokens and i in after.tokens for i in ids))


def noise_of(
    run: Run, sides: Mapping[str, Side], runs: Mapping[str, Run], prompts: Sequence[str], name: str
) -> tuple[str, str, list[str]]:
    """Of which side a run is another sweep, its model's slug there, and the prompts to compare.

    Args:
      run: the run.
      sides: "before" and "after", which may still have to be swept.
      runs: those of the sides that have been scored.
      prompts: that are compared.
      name: of the run, as messages have it.

    Raises:
      AssayError: a run of neither model or of none of the prompts, or the numbers of a side.
    """
    owners, slug = _owners_of(run, name, sides)
    side = side_of(run, slug, name)
    common = [prompt for prompt in prompts if prompt in side.prompts]
    if not common:
        raise AssayError(f"{name}: none of the prompts; allowed: {', '.join(prompts)}")
    matching(sides[owners[0]], side, common)
    equal = {prompt: list[str]() for prompt in common}
    for prompt, of in itertools.product(common, (of for of in owners if of in runs)):
        pair = two_models(runs[of], run, [prompt], (sides[of].slug, slug))
        first, second = (pair.rewards(state, prompt)[1] for state in (BEFORE, AFTER))
        if np.array_equal(first, second):
            equal[prompt].append(of)
    if all(equal.values()):
        raise AssayError(
            f"{name}: has the same rewards or log-probabilities as --{equal[common[0]][0]}; "
            "allowed: another sweep of that checkpoint, in another dtype or step size, or on "
            "another mesh"
        )
    return owners[0], slug, [prompt for prompt in common if not equal[prompt]]


def _owners_of(noise: Run, name: str, sides: Mapping[str, Side]) -> tuple[list[str], str]:
    """The sides that another run has scored again, and the model's slug there."""
    hashes = {
        of: _identities(known.identity for known in side.prompts.values())
        for of, side in sides.items()
    }
    for slug in dict.fromkeys(model for model, _ in (*noise.results, *noise.logprobs)):
        theirs = _identities(result.identity for result in scored(noise, slug).values())
        owners = [of for of in (AFTER, BEFORE) if theirs & hashes[of]]
        if owners:
            return owners, slug
    raise AssayError(
        f"{name}: of neither model; allowed: another sweep of the checkpoint of --before or "
        "--after, in its mode and pooling"
    )


def _identities(identities: Iterable[Identity]) -> set[tuple[str, ...]]:
    """Checkpoint, mode and pooling of identities; of imported rewards none is known."""
    return {(i.checkpoint_hash, i.mode, i.pooling) for i in identities if not i.imported}
