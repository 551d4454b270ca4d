"""Search for the token sequences that a reward model rates highest and lowest.

objective    what is maximised: a model's reward under prompts, signs, admitted sequences
passes       gradients of the parents and rewards of the candidates of a step
step         the step: gradient, proposals, scores, buffer
loop         host loop of one search until it ends; its trace, from whose file it resumes
certificate  whether a swap of one token improves a reply
jobs         which searches a run lacks
run_folder   runs the jobs of a command and writes what they find
"""
