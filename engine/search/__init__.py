"""Search for the token sequences that a reward model rates highest and lowest.

objective    what one search maximises: model, prompts, signs, admitted sequences
gcg          the step: gradient, proposals, scores, buffer; proposals and passes are its functions
baselines    methods that enumerate the vocabulary, and rewards of rows behind a common beginning
trace        best sequence after each step; its file, from which a search resumes
loop         host loop of one search: compiled steps or enumeration, until it ends
judges       one sequence for several models and prompts: judges, standardised; universal its step
certificate  whether a swap of one token improves a found sequence; the ascent if one does
jobs         which searches a run lacks; certificates which certificates, and their files
run_folder   runs the jobs of a command and writes what they find
"""
