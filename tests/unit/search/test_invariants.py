"""What comes out of a search: allowed tokens, fixed positions kept, texts that tokenise back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.search.loop import run_search
from engine.search.run_folder import trace_frame
from tests.support import searches
from tests.support.searches import problem

# Words that merge with each other and with bytes: many sequences of them do not round-trip.
_TEXTS = ("l", "o", "v", "e", "love", " love", " ", "t", "h", "the", " the", "w", "a", "r", "war")
_INITIAL = "ow!z"


@pytest.mark.slow
@settings(max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    direction=st.sampled_from(("max", "min")),
    fixed=st.sampled_from(((), (2,))),
    few=st.sets(st.sampled_from(_TEXTS), min_size=8),
    given_initial=st.booleans(),
)
def test_what_is_found_is_allowed_and_is_what_its_text_tokenises_to(
    checkpoint, seed, direction, fixed, few, given_initial
):
    model = checkpoint()
    initial = _INITIAL if given_initial or fixed else ""
    asked = problem(
        model,
        seed=seed,
        direction=direction,
        fixed=fixed,
        allow=(*few, *set(_INITIAL)),
        initial=initial,
        length=4,
        topk=8,
        steps=4,
        every=4,
        restarts=1,
        round_trip=True,
    )
    trace, _ = run_search(asked, searches.scorer(model), None, lambda steps, trace: None)
    frame = trace_frame(asked, trace, direction)
    (split,) = asked.prompts
    start = model.template.reply_ids(_INITIAL)
    for row in frame.iter_rows(named=True):
        ids = row["token_ids"]
        whole = [*split.prefix, *ids, *split.suffix]
        assert model.template.sequences("Who?", [row["text"]])[0] == whole
        assert asked.allowed[ids].all()
        assert [ids[i] for i in fixed] == [start[i] for i in fixed]
    sign = 1 if direction == "max" else -1
    assert (np.diff(sign * frame["reward"].to_numpy()) >= 0).all()
    last = frame.row(-1, named=True)
    whole = [*split.prefix, *last["token_ids"], *split.suffix]
    plain = searches.scorer(model).plain_rewards([whole])
    np.testing.assert_allclose(plain[0, 0], last["reward"], rtol=1e-4, atol=1e-5)
