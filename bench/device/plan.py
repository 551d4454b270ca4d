"""Which sections run for which model, in which order, and how long each model may take."""

from collections.abc import Sequence

from bench.device.runner import Job

# The order of importance. The names are those of bench.device.models, which would import jax.
MODELS = ("llama-3.1-8b", "gemma-2-27b", "llama-3.2-1b", "gemma-2-2b", "qwen3-8b")

# Less than nine, with what a worker at work is given until it is killed (`runner.GRACE_S`).
MINUTES = 8.8

_SHORT = ("memory", "ceiling", "sweep", "vocabulary", "prefill")
_FIRST = ("memory", "ceiling", "sweep", "vocabulary", "search", "prefill", "kernels")

# Share of the whole time that a job may take. Together they are more than all: what is left when a
# job ends early goes to those behind it.
_SHARE = 0.2
_SHARES = {_FIRST: 0.45, _SHORT: 0.35}


def jobs(models: Sequence[str], sections: Sequence[str], seconds: float) -> list[Job]:
    """The jobs of a run, the most important first.

    Args:
      models: of `MODELS`; the first is measured in full.
      sections: of `worker.SECTIONS`; others are left out.
      seconds: for all jobs.
    """
    first, *others = models
    plan = [(first, _FIRST), (first, ("agreement",))]
    plan += [(name, _SHORT) for name in others[:1]]
    plan += [(first, (alone,)) for alone in ("transformers", "start", "replies")]
    plan += [(name, _SHORT) for name in others[1:]]
    plan.append((first, ("vllm",)))
    return [
        Job(model=model, sections=kept, limit_s=_SHARES.get(own, _SHARE) * seconds)
        for model, own in plan
        if (kept := tuple(section for section in own if section in sections))
    ]
