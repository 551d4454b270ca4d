"""Which sections run for which model, in which order, and how long each model may take."""

from collections.abc import Sequence

from bench.device.runner import Job

# The order of importance. The names are those of bench.device.models, which would import jax.
MODELS = ("llama-3.1-8b", "gemma-2-27b", "llama-3.2-1b", "gemma-2-2b", "qwen3-8b")

_WHOLE = (
    "memory",
    "ceiling",
    "sweep",
    "vocabulary",
    "search",
    "prefill",
    "kernels",
    "replies",
)
_SHORT = ("memory", "ceiling", "sweep", "vocabulary", "prefill")

# Share of the whole time that a job may take. Together they are more than all: what is left when a
# job ends early goes to those behind it.
_FIRST, _OTHER = 0.5, 0.35
_SHARES = {"agreement": 0.2, "transformers": 0.2, "start": 0.2, "vllm": 0.25}


def jobs(models: Sequence[str], sections: Sequence[str], seconds: float) -> list[Job]:
    """The jobs of a run, the most important first.

    Args:
      models: of `MODELS`; the first is measured in full.
      sections: of `worker.SECTIONS`; others are left out.
      seconds: for all jobs.
    """
    first, *others = models
    plan = [(first, _WHOLE, _FIRST), (first, ("agreement",), _SHARES["agreement"])]
    plan += [(name, _SHORT, _OTHER) for name in others[:1]]
    plan += [(first, (alone,), _SHARES[alone]) for alone in ("transformers", "start")]
    plan += [(name, _SHORT, _OTHER) for name in others[1:]]
    plan.append((first, ("vllm",), _SHARES["vllm"]))
    kept = [(model, tuple(s for s in own if s in sections), share) for model, own, share in plan]
    return [
        Job(model=model, sections=own, limit_s=share * seconds) for model, own, share in kept if own
    ]
