"""Values of a run among several lists of items, and numbers that are over all models."""

import polars as pl
import pytest

from analysis.published.run_values import Missing, RunValues

TEN = [f"model {i}" for i in range(10)]
PROMPT = "elo_greatest"


def matrix(models, tau, people=True):
    names = [*(["human"] if people else []), *models]
    cells = {name: [1.0 if name == other else tau for other in names] for name in names}
    return pl.DataFrame({"model": names, **cells})


def people_tables(name, rho, tau=0.5, models=TEN):
    """What the chapter on people makes of one list."""
    cell = {"list": name, "prompt": PROMPT}
    ranks = {model: [1.0, 2.0] if i < 6 else [2.0, 1.0] for i, model in enumerate(models)}
    items = {"item_id": [0, 1], "item": ["Love", "War"], "matches": 60, "human_rank": [1.0, 2.0]}
    return {
        ("humans_correlation",): pl.DataFrame(
            [{**cell, "model": m, "spearman": rho} for m in models]
        ),
        ("humans_gap",): pl.DataFrame([{**cell, "item": "Love", "gap": 100 * rho}]),
        ("humans_kendall", name, PROMPT): matrix(models, tau),
        ("humans_ranks", name, PROMPT): pl.DataFrame({**items, **ranks}),
    }


def both(first, second):
    """Tables of two lists in one run."""
    tables = {**first, **second}
    for key in (("humans_correlation",), ("humans_gap",)):
        tables[key] = pl.concat([first[key], second[key]])
    return tables


def moments(**scored):
    """Prompt -> models that scored their vocabulary under it."""
    rows = [{"model": model, "prompt": p} for p, models in scored.items() for model in models]
    return pl.DataFrame(rows, schema={"model": pl.String, "prompt": pl.String})


def computed(tables, items="", reasons=None):
    slugs = {name.upper(): name for name in TEN}
    return RunValues(name="a run", tables=tables, reasons=reasons or {}, slugs=slugs, items=items)


def number(run, exhibit, quantity, model="", other=""):
    row = {"exhibit": exhibit, "quantity": quantity, "model": model, "other": other}
    prompt = PROMPT if exhibit.startswith("figure_5") or exhibit == "figure_a5" else "greatest"
    return run.number({**row, "prompt": prompt})


OF_LIST = [  # a number, and its value for a list of rho .25 and tau .5
    (("figure_5a", "spearman", "MODEL 1", "human"), 0.25),
    (("figure_5b", "rank_gap", "", "Love"), 25.0),
    (("figure_5b", "first", "", "Love"), 6.0),
    (("figure_a5", "kendall", "MODEL 1", "human"), 0.5),
    (("figure_a5", "kendall", "MODEL 1", "MODEL 2"), 0.5),
    (("figure_a5", "mean_kendall", "", "models"), 0.5),
]


@pytest.mark.parametrize(("which", "value"), OF_LIST)
def test_of_two_lists_the_named_one_is_compared_wherever_it_stands(which, value):
    other = people_tables("aaa", 0.75, tau=0.1, models=[*TEN[::-1], "zzz"])
    asked = people_tables("items", 0.25)
    for tables in (both(other, asked), both(asked, other)):
        assert number(computed(tables, "items"), *which) == value
    assert number(computed(asked), *which) == value  # the only one needs no name
    tables = both(other, asked)
    with pytest.raises(Missing, match=r"several lists were scored \(aaa, items\): --elo says"):
        number(computed(tables), *which)
    with pytest.raises(Missing, match="the list third was not scored"):
        number(computed(tables, "third"), *which)


OF_PEOPLE = [which for which, _ in OF_LIST if which[1] in ("rank_gap", "first", "mean_kendall")]


@pytest.mark.parametrize("which", OF_PEOPLE)
@pytest.mark.parametrize("swept", [0, 10])
def test_numbers_of_the_items_count_the_models_that_scored_the_items(which, swept):
    """A run of items alone has all ten; one with all ten sweeps may lack a model's items."""
    tables = {("moments",): moments(greatest=TEN[:swept])}
    assert number(computed(people_tables("items", 0.25) | tables), *which) is not None
    nine = people_tables("items", 0.25, models=TEN[:9])
    with pytest.raises(Missing, match="it is over all ten models, and 9 were scored"):
        number(computed(nine | tables), *which)


def rsa(traits=("base", "developer", "size", "rank")):
    columns = {"pearson_r": 0.5, "mantel_p": 0.01, "r_squared": 0.37}
    table = pl.DataFrame([{"predictor": trait, **columns} for trait in traits])
    return {("rsa_rounded", "greatest"): table}


@pytest.mark.parametrize(
    ("quantity", "value"), [("pearson", 0.5), ("mantel_p", 0.01), ("r_squared", 0.37)]
)
def test_figure_2c_counts_the_models_that_scored_under_greatest(quantity, value):
    of = ("figure_2c", quantity, "", "base" if quantity != "r_squared" else "joint")
    people = people_tables("items", 0.2, models=[])
    ten = computed(rsa() | {("moments",): moments(greatest=TEN)} | people)
    assert number(ten, *of) == value
    nine = computed(rsa() | {("moments",): moments(greatest=TEN[:9], best=TEN)})
    with pytest.raises(Missing, match="it is over all ten models, and 9 were scored"):
        number(nine, *of)
    assert nine.scored == TEN[:9]


def test_agreement_of_two_models_needs_no_people():
    tables = {("items_kendall", "words", PROMPT): matrix(TEN, 0.4, people=False)}
    why = {("humans_kendall",): "the items have no human ranks."}
    run = computed(tables, "words", why)
    assert number(run, "figure_a5", "kendall", "MODEL 1", "MODEL 2") == 0.4
    assert number(run, "figure_a5", "mean_kendall", "", "models") == pytest.approx(0.4)
    with pytest.raises(Missing, match=r"^the items have no human ranks$"):
        number(run, "figure_a5", "kendall", "MODEL 1", "human")


@pytest.mark.parametrize("which", [which for which, _ in OF_LIST if "MODEL 2" not in which][:4])
@pytest.mark.parametrize("other", [{}, people_tables("aaa", 0.75)])
def test_a_list_without_human_ranks_says_so_whatever_other_lists_there_are(which, other):
    why = dict.fromkeys([("humans_correlation",), ("humans_kendall",)], "no human ranks.")
    tables = {**other, ("items_kendall", "words", PROMPT): matrix(TEN, 0.4, people=False)}
    with pytest.raises(Missing, match=r"^no human ranks$"):
        number(computed(tables, "words", why), *which)


def test_the_mean_of_the_agreement_is_that_of_pairs_of_models():
    cells = matrix(TEN, 0.4)
    cells = cells.with_columns(
        human=pl.lit(0.9), **{TEN[0]: pl.when(model=TEN[1]).then(0.85).otherwise(TEN[0])}
    )
    cells = cells.with_columns(**{TEN[1]: pl.when(model=TEN[0]).then(0.85).otherwise(TEN[1])})
    run = computed(people_tables("items", 0.2) | {("humans_kendall", "items", PROMPT): cells})
    assert number(run, "figure_a5", "mean_kendall", "", "models") == pytest.approx(0.41)
