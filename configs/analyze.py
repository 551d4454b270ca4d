"""Tables, figures and one report from the scores of a run.

    python -m launch.analyze --run=out/run --report=out/report

Ten models (six of 128,256 tokens, four of 256,000) under three prompts take about a minute on
two cores. Result: out/report/index.html, which opens from disk, with figures/ and tables/.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Every setting of `launch.analyze`."""
    config = ConfigDict()
    config.top = 20  # Tokens per end in the tables.
    config.figure_top = 10  # Tokens per end in the charts; at most `top`.
    config.page_prompts = 6  # Prompts of vocabularies on the page; the tables hold all of them.
    config.allow_incomplete = False  # Also report on a sweep that has not finished.
    config.options = ConfigDict()
    # Tokens of two models are the same if their strings are equal, as in the paper. The next three
    # settings also ignore outer spaces, ignore case, and leave out tokens that do not round-trip.
    config.options.shared_trim = False
    config.options.shared_fold_case = False
    config.options.shared_round_trip = False
    config.options.shared_ends = False  # True: also list top and bottom of the shared vocabulary.
    # Whether " love" matches a lexicon's "love": "always", "never" (the paper's rule), or "auto",
    # which is "always" for rewards of mode ids and log-probabilities, and "never" for all others.
    config.options.match_trim = "auto"
    config.options.afinn = ""  # Path of an AFINN file; "": the package afinn, if installed.
    config.options.frequency = ""  # Path of a BNC word list; "": the package wordfreq.
    config.options.bing = ""  # Path of a Bing Liu lexicon (word, sentiment).
    config.options.identity = ""  # CSV of more identity terms (word, group, axis, form, stem).
    config.options.categories = ""  # CSV of words in categories; "": the built-in list.
    config.options.questions = ""  # CSV of what prompts ask for (prompt, question, framing).
    config.options.framing = ("best", "worst")  # Good and bad; "greatest" if no "best".
    config.options.humans_matches = 50  # Items that people compared less often are left out.
    config.options.humans_in_median = False  # True: humans count in the median, as in the release.
    config.options.rbo_p = 0.9  # Persistence of rank-biased overlap.
    config.options.permutations = 9_999  # Draws of each permutation test.
    config.options.bootstraps = 2_000  # Draws of each bootstrap interval.
    config.options.seed = 0
    return config
