"""The table of --plan: what a reproduction would take, for a person who decides about it."""

from collections.abc import Sequence

from engine.planning.memory import in_words
from engine.planning.plans import Plan
from launch.common.durations import in_hours
from launch.reproduction import sources
from launch.reproduction.asked import ALL, CONVERT, ITEMS, READINGS, Asked
from launch.reproduction.planning import Step, disk
from launch.reproduction.readings import Reading


def text(asked: Asked, readings: Sequence[Reading], planned: Sequence[Step]) -> str:
    """The table of --plan, which a person can act on."""
    names = [one.devices.name for one in planned[0].plans] if planned else []
    head = (
        "model",
        "fetch",
        "checkpoint",
        "memory to convert",
        "on a device",
        "to compute",
        *names,
    )
    lines = [
        f"planned below {asked.root}: {len(asked.rewards)} reward models and "
        f"{len(asked.languages)} language models, nothing is done",
        f"stages: {', '.join(asked.stages)}",
        f"readings of a reward model: {'; '.join(reading.name for reading in readings)}",
        "",
        *_aligned([head, *(_row(asked, step) for step in planned), _total(planned)]),
        "",
        "*: expected from the model's shapes; the others are the bytes of the published tensors",
        *_disk_lines(asked, planned),
        *_of_noise(asked, planned),
        *_of_tries(asked, planned),
        *_not_planned(asked, planned),
        *_assumed(planned),
    ]
    return "\n".join(lines)


def _row(asked: Asked, step: Step) -> tuple[str, ...]:
    mark = "" if step.known else "*"
    fetch = f"{in_words(step.fetch)}{mark}" if step.fetch else "–"
    made = f"{in_words(step.checkpoint)}{mark}" if step.checkpoint else "–"
    todo = [
        f"readings up to about {missing}" if stage == READINGS else f"{stage} {missing}/{of}"
        for stage, missing, of in step.todo
        if missing
    ]
    times = [
        _time(one, seconds) if step.todo else "–"
        for one, seconds in zip(step.plans, step.seconds, strict=True)
    ]
    return (
        step.spec.nickname,
        fetch,
        made,
        in_words(step.host) if step.checkpoint else "–",
        in_words(step.plans[0].account.total) if step.plans else "–",
        ", ".join(todo) or _without_results(step, converts=asked.runs(CONVERT)),
        *times,
    )


def _without_results(step: Step, *, converts: bool) -> str:
    """What is said of a model of which no result is to be computed."""
    if step.todo:
        return "complete already"
    if not converts:
        return "nothing to compute"
    return CONVERT if step.checkpoint else "converted already"


def _time(one: Plan, seconds: float | None) -> str:
    return f"too large; {one.would_fit} would do" if seconds is None else _short(seconds)


def _short(seconds: float) -> str:
    return in_hours(seconds) if seconds >= 1 else "< 1 s"


def _total(planned: Sequence[Step]) -> tuple[str, ...]:
    times = []
    for index in range(len(planned[0].plans) if planned else 0):
        each = [step.seconds[index] for step in planned if step.todo]
        known = [seconds for seconds in each if seconds is not None]
        some = (
            ""
            if len(known) == len(each)
            else f" ({len(known)} of {len(each)} models; the others do not fit)"
        )
        nothing = "none fits" if each else "–"
        times.append(_short(sum(known)) + some if known else nothing)
    fetched, made = (sum(getattr(s, name) for s in planned) for name in ("fetch", "checkpoint"))
    return ("in all", in_words(fetched), in_words(made), "", "", "", *times)


def _disk_lines(asked: Asked, planned: Sequence[Step]) -> list[str]:
    found = disk(asked, planned)
    free = "unknown" if found.free is None else in_words(found.free)
    lines = [
        f"disk at its peak: {in_words(found.keep_all)} with --keep=all, "
        f"{in_words(found.keep_none)} with --keep=none; free at {asked.root}: {free}",
        f"downloads go to {sources.cache()}, with --keep=none below {asked.root}",
    ]
    if found.free is not None and found.needed(asked.keep) > found.free:
        other = found.keep_none <= found.free and asked.keep == "all"
        way = "--keep=none fits" if other else "use a larger disk, or fewer --models"
        lines.append(f"that does not fit with --keep={asked.keep}: {way}")
    return lines


def _of_noise(asked: Asked, planned: Sequence[Step]) -> list[str]:
    """What the results in the second dtype take, of those that are missing."""
    lines = []
    for index, one in enumerate(planned[0].plans if planned and asked.config.second_dtype else ()):
        each = {step.spec.nickname: step.noise_s[index] for step in planned}
        large = [name for name, seconds in each.items() if seconds is None]
        over = f"; too large in it, so that this fails for {', '.join(large)}" if large else ""
        lines.append(
            f"noise between dtypes: the paper's conventions in {asked.config.second_dtype} too, "
            f"{_short(sum(filter(None, each.values())))} on {one.devices.name}, counted in the "
            f"times above{over}"
        )
    return lines


def _of_tries(asked: Asked, planned: Sequence[Step]) -> list[str]:
    """What the stage `readings` may take, which is known when the models' values are."""
    if not any(
        stage == READINGS and missing for step in planned for stage, missing, _ in step.todo
    ):
        return []
    names = [one.devices.name for one in planned[0].plans]
    times = [
        f"{_short(sum(step.tries_s[index] for step in planned))} on {name}"
        for index, name in enumerate(names)
    ]
    which = "of every model" if asked.tried == ALL else "of models and prompts whose values differ"
    return [
        f"readings: one of the paper's conventions changed at a time, {which}; up to about "
        f"{', '.join(times)}, counted in the times above; --readings=none leaves them out"
    ]


def _not_planned(asked: Asked, planned: Sequence[Step]) -> list[str]:
    """What a complete reproduction needs and was not given."""
    absent = [step.spec.nickname for step in planned if step.absent]
    lines = [f"no folder in --source-dir: {', '.join(absent)}"] if absent else []
    if asked.elo is None and asked.runs(ITEMS):
        lines.append("EloEverything: not planned; --elo=<csv of the authors' release> adds it")
    if not asked.config.second_dtype:
        lines.append(
            "noise between dtypes: not planned; --config.second_dtype=float32 (on a CPU: bfloat16) "
            "adds it"
        )
    return lines


def _assumed(planned: Sequence[Step]) -> list[str]:
    lines = []
    for one in planned[0].plans if planned else ():
        kind = one.devices.kind
        lines.append(
            f"{one.devices.name}: {in_words(kind.memory_bytes)} each; a sweep is assumed to reach "
            f"{kind.share:.0%} of its speed ({kind.source}); times leave out searches, "
            "compilation, loading and the download"
        )
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
