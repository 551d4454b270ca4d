"""Search for the token sequences that a reward model rates highest and lowest.

filters    which replies are admitted: allowed tokens, texts that tokenise back
objective  what is maximised: rewards of candidates and slopes of their parents, signed
proposals  the candidates of a step
gcg        the state, its step (proposals, scores, selection), and the loop over steps
run        searches into a run folder: files, resuming, every swap of one token of what was found
"""
