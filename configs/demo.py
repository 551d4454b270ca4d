"""The demo: embedded reward models and their language model are built, run and reported on.

    make demo        (python -m launch.demo)

Every token of the vocabulary under two prompts, a list of words under eight, both under the
language model too, and a search. Writes out/demo/report/index.html. With --all a third prompt, more
searches, and a comparison of two models, out/demo/diff/index.html. A second run takes seconds.
"""

from configs import common, search
from engine.settings import DemoSettings

SETTINGS = (DemoSettings, *common.SCORING)


def get_config():
    """Every setting of `launch.demo`."""
    sections = ("search", "certified")
    config = common.config_of(*SETTINGS, without=sections)
    config.update(
        prompts="greatest,worst", more_prompts="best", mode="ids", lens=True, part_size=8192
    )
    # Four questions, each in the same two wordings.
    config.word_prompts = ",".join(
        f"{question}-{wording}"
        for question in ("best", "greatest", "worst", "most_terrible")
        for wording in ("ever-one-word", "in_the_world-answer-only")
    )
    for section in sections:
        config[section] = search.get_config()
    config.search.update(length=4, steps=20, candidates=64, topk=64)
    config.certified.update(direction="max", length=3, steps=10, topk=64, certify=True)
    config.certified.update(seed=1)  # a name of its own in the run
    config.compared = "smollm2-135m-d16-rt-linear,smollm2-135m-d16-rt-mlp"
    return config
