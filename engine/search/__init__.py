"""Search for the token sequences that a reward model rates highest and lowest.

settings     what a search is told
constraints  which tokens and texts may be found
propose      candidates of a step: gradient-guided, random
packing      where candidates are computed: two in a row, from their first change on
buffer       what an attempt keeps and draws its parents from
step         the compiled step: propose, score, select
baselines    searches without a gradient that sweep the vocabulary
flops        what a step costs
climb        the host's side of one search: steps, verdicts, budget, state
runs         searches of models and prompts into a run folder
"""
