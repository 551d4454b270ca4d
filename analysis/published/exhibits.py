"""Every table and figure of the paper, in its order: what it shows, and what is needed for it."""

import dataclasses
from typing import Final

SWEEP, ITEMS, SEARCH, LOGPROBS = "sweep", "items", "search", "logprobs"
# Stage of `assay reproduce` -> what is missing where it was not run.
NEEDS: Final = {
    SWEEP: "the rewards of every token (stage `sweep`)",
    ITEMS: "the EloEverything items (stage `items`; give --elo)",
    SEARCH: "a search (stage `search`)",
    LOGPROBS: "log-probabilities of the language models (stage `logprobs`)",
}
_NO_NUMBERS = (
    "The paper shows a figure without numbers, so there is nothing to compare digit by digit."
)
_LANGUAGE = (
    "The paper’s reading leaves Gemma 2’s attention soft-cap out of reward models only: language "
    "models keep it here."
)
_NOT_AT_HAND = "The published list was not at hand where Assay was built: only this run’s is shown."


@dataclasses.dataclass(frozen=True)
class Exhibit:
    """A table or a figure."""

    id: str  # as in the column `exhibit` of the published values
    name: str  # as the paper calls it
    title: str  # what it shows, in a few words
    stage: str  # of `assay reproduce` that computes it; a key of `NEEDS`
    note: str = ""  # what a reader of the comparison has to know
    # Stems of figures that belong to it; one that ends in `_` is a prefix.
    pictures: tuple[str, ...] = ()
    of_shared: bool = False  # whether it is over the tokens that all scored models share
    # Name of the table of a run that holds its lists of tokens; "" where it has none.
    lists: str = ""
    prompts: tuple[str, ...] = ()  # prompts of its lists, where the published ones are not at hand


EXHIBITS: Final = (
    Exhibit("table_1", "Table 1", "The ten reward models", SWEEP),
    Exhibit(
        "table_2",
        "Table 2",
        "Highest and lowest tokens of two models, with their rewards",
        SWEEP,
        "The printed rewards are in steps of 1/32 and coarser: those of bfloat16. So are this "
        "run’s of seven models in the paper’s conventions; ours are not rounded, and half such a "
        "step counts as the same.",
        lists="top_bottom",
    ),
    Exhibit(
        "figure_1",
        "Figure 1",
        "Distributions of the rewards",
        SWEEP,
        f"{_NO_NUMBERS} Table 3 has the moments.",
        ("distributions",),
        of_shared=True,
    ),
    Exhibit("table_3", "Table 3", "Moments of the distributions", SWEEP, of_shared=True),
    Exhibit(
        "figure_2a",
        "Figure 2A",
        "How alike two models rank the shared vocabulary: Kendall’s τ",
        SWEEP,
        pictures=("kendall_tau",),
        of_shared=True,
    ),
    Exhibit(
        "figure_2b",
        "Figure 2B",
        "A map of the models",
        SWEEP,
        _NO_NUMBERS,
        ("mds_",),
        of_shared=True,
    ),
    Exhibit(
        "figure_2c",
        "Figure 2C",
        "What explains agreement",
        SWEEP,
        "The paper’s own test is not in its release: the published values here were recomputed "
        "from the printed numbers of Figure 2A. So this run’s agreement, too, is rounded to two "
        "decimals before they are computed. The published p-values have the chance error of some "
        "thousands of permutations, which counts as the same.",
        ("rsa_greatest",),
        of_shared=True,
    ),
    Exhibit(
        "figure_3c",
        "Figures 3A–C and A4",
        "Reward against the sentiment of a word: slopes of positive and of negative words",
        SWEEP,
        "Published slopes were read off the figure, to ±0.005; hidden ones are left out.",
        ("sentiment_slopes",),
    ),
    Exhibit(
        "figure_3d",
        "Figure 3D",
        "Reward against the frequency of a word, sentiment held: slopes",
        SWEEP,
        "Published slopes were read off the figure, to ±0.005. They rest on the BNC word list: "
        "give it as --config.frequency. In the paper’s conventions it is joined on its head words, "
        "and a word of several parts of speech counts once for each. Where the package wordfreq "
        "stands in for it, the slopes are shown and not judged.",
        ("frequency_slopes",),
    ),
    Exhibit(
        "figure_4",
        "Figures 4 and A2",
        "The best thing against the worst thing",
        SWEEP,
        _NO_NUMBERS,
        ("framing",),
    ),
    Exhibit(
        "gcg",
        "Searched sequences (GCG)",
        "Longer replies with the highest and lowest rewards that a search found",
        SEARCH,
        "A search depends on its random numbers and on ties: another run of the paper’s own code "
        "finds other sequences. Only this run’s are shown. As in the paper’s code, the search for "
        "the lowest reward uses the gradient of maximising. It begins at one sequence of random "
        "tokens; the paper’s began at four given strings.",
    ),
    Exhibit(
        "figure_5a",
        "Figure 5A",
        "EloEverything: each model’s order of the items against people’s",
        ITEMS,
        "The value of F-Lla-8B-v0.1 is computed from the authors’ released scores.",
        ("humans_correlation_",),
    ),
    Exhibit(
        "figure_5b",
        "Figure 5B",
        "EloEverything: items that the models rank unlike people",
        ITEMS,
        "In the paper’s conventions the median rank of the models counts the human column too. "
        "The paper’s caption says that five models rank “Unconditional love” first; its data say "
        "six.",
        ("humans_gap_",),
    ),
    Exhibit(
        "figure_a1",
        "Figure A1",
        "Agreement by Spearman’s ρ and by rank-biased overlap",
        SWEEP,
        of_shared=True,
    ),
    Exhibit(
        "figure_a3",
        "Figure A3",
        "Rewards of the words of the Bing lexicon",
        SWEEP,
        f"{_NO_NUMBERS} The lexicon is not shipped: give it as --config.bing.",
        ("bing_points_greatest",),
    ),
    Exhibit(
        "figure_a5",
        "Figures A5–A7",
        "EloEverything: agreement among people and models",
        ITEMS,
        pictures=("humans_kendall_", "items_kendall_", "humans_ranks_"),
    ),
    *(
        Exhibit(
            f"table_a{number}",
            f"Table A{number}",
            f"Next tokens of ten language models under “{prompt}”",
            LOGPROBS,
            _LANGUAGE if prompt == "greatest" else f"{_NOT_AT_HAND} {_LANGUAGE}",
            lists="logprobs",
            prompts=(prompt,),
        )
        for number, prompt in ((1, "greatest"), (2, "best"), (3, "worst"))
    ),
    *(
        Exhibit(
            f"table_a{number}",
            f"Table A{number}",
            f"Next tokens of ten language models: {how} of “best” and “worst”",
            LOGPROBS,
            f"{_NOT_AT_HAND} {_LANGUAGE}",
            lists=f"framing_logprobs_{how}",
            prompts=("best",),
        )
        for number, how in ((4, "sum"), (5, "difference"))
    ),
    Exhibit(
        "table_a6",
        "Table A6",
        "Highest and lowest tokens of every model",
        SWEEP,
        lists="top_bottom",
    ),
    Exhibit(
        "table_a7",
        "Table A7",
        "Highest and lowest tokens of the shared vocabulary",
        SWEEP,
        of_shared=True,
        lists="shared_top_bottom",
    ),
    *(
        Exhibit(
            f"table_a{number}",
            f"Table A{number}",
            f"Highest and lowest shared tokens by the {how} of “best” and “worst”",
            SWEEP,
            _NOT_AT_HAND,
            of_shared=True,
            lists=f"shared_{how}",
            prompts=("best",),
        )
        for number, how in ((8, "sum"), (9, "difference"))
    ),
)
BY_ID: Final = {exhibit.id: exhibit for exhibit in EXHIBITS}
