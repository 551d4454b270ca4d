"""The demo: embedded reward models and their language model are built, run and reported on.

    make demo        (python -m launch.demo)

Every token of the vocabulary under three prompts, a list of words under eight, both under the
language model too, and searches. Writes out/demo/report/index.html, and a comparison of two models,
out/demo/diff/index.html. Takes four to eight minutes on two cores; a second run takes seconds.
"""

from configs import common, diff, gcg


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
    # One reply for all models that are searched; the best reply of three of the words by the first
    # of them, of which no swap of a word is better. Under the first prompt, too.
    config.together = gcg.get_config()
    config.together.update(universal="minimum", direction="max", length=4, steps=10, topk=64)
    config.certified = gcg.get_config()
    config.certified.update(direction="max", length=3, steps=10, topk=64, certify=12)
    config.certified.update(seed=1, transfer=False)  # seed: a name of its own in the run
    # Slugs of two models: what `assay diff` says of them, if both are among `models`.
    config.compared = "smollm2-135m-d16-rt-linear,smollm2-135m-d16-rt-mlp"
    config.limits = diff.get_config().limits
    return config
