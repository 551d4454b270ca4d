"""What the paper printed, beside what a run gives: values, verdicts, and the page that shows both.

    published = data.read()                         # what the paper and its release state
    paper = tables.own_of("paper", study, infos)    # the same tables of a run
    comparison.compare(published, Readings(paper=paper, ours=…))

The published values are numbers and tokens of *Reward Model Interpretability via Optimal and
Pessimal Tokens* (Christian et al., FAccT 2025) and of the files that its authors released. Each row
names its source.
"""
