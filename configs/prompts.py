"""Prompts by id."""

# The paper's three (section 3); every sweep's default.
PAPER = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "best": "What, in one word, is the best thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}

# The paper's EloEverything prompts: main text, and the second one.
ELO = {
    "elo_greatest": "What one single thing, person, or concept is the greatest ever?",
    "elo_prefer": "What is the single thing, person, or concept that humans most prefer?",
}

PROMPTS = {**PAPER, **ELO}

# What `--config=configs/sweep.py:<set>` selects.
SETS = {"paper": PAPER, "elo": ELO}


def selected(selection: str) -> str:
    """Ids of a set of prompts, comma-separated, as `--config.prompts` takes them."""
    if selection not in SETS:
        allowed = ", ".join(map(repr, SETS))
        raise ValueError(f"no set of prompts {selection!r}; allowed: {allowed}")
    return ",".join(SETS[selection])
