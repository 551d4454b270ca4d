"""The demo: embedded reward models and their language model are built, run and reported on.

    make demo        (python -m launch.demo)

Every token of the vocabulary under three prompts, a list of words under eight, both under the
language model too, and a search. Writes out/demo/report/index.html. Takes about eight minutes on
two cores; a second run takes seconds.
"""

from configs import common, gcg


def get_config():
    """Every setting of `launch.demo`."""
    config = common.scoring()
    config.root = "out/demo"  # hf/, checkpoints/, run/ and report/ lie below it
    config.models = ""  # slugs of demo/embedded_models.py, comma-separated; "": all
    config.prompts = "greatest,best,worst"  # ids of configs/prompts.py; "": no sweep, no search
    config.mode = "ids"
    config.lens = True  # the reward after every layer too
    config.part_size = 8192
    # The words of a .csv (column `word`), scored under these prompts: four questions, each in the
    # same two wordings. "": no words. The default is the built-in word categories.
    config.words = "categories"
    config.word_prompts = ",".join(
        f"{question}-{wording}"
        for question in ("best", "greatest", "worst", "most_terrible")
        for wording in ("ever-one-word", "in_the_world-answer-only")
    )
    config.language_model = True  # log-probabilities of the model that the trunks come from
    config.searched = 2  # number of models that are searched, each compiled for itself; 0: none
    config.search = gcg.get_config()  # under the first prompt, in both directions
    config.search.length = 4
    config.search.steps = 20
    config.search.candidates = 64
    config.search.topk = 64
    return config
