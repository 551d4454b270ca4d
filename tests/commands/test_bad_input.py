"""Bad input of any command: one line that names it and what is allowed, and nothing is written."""

import shlex

import pytest

from tests.support import runs, tiny

FILES = {
    "words.txt": "love\n",
    "eos.txt": "<|im_end|>\n",
    "no-name.csv": "word,n\nlove,1\n",
    "empty-line.txt": "love\r\n\r\nwar",
    "list.json": "[]",
    "empty.txt": "",
    "empty.jsonl": "\n",
    "header.csv": "name\n",
    "array.jsonl": '[\n{"reply": "love"}\n]',
    "surrogate.jsonl": '{"reply": "love"}\n{"reply": "\\ud800"}\n',
    "bare.jsonl": "{}\n",
    "prompts.csv": "prompt,reply\na,b\n",
    "pairs.csv": "prompt,chosen,rejected\na,b,c\n",
    "texts.csv": "chosen,rejected\na,b\n",
    "config.json": "{",
}
MODELS = "--checkpoint is missing"
OF_PAIRS = "'prompt'); leave out --"
OF_SHARDS = "allowed: k/n with 1 <= k <= n"
# Command with its flags -> further flags -> what the line says; in braces, what `place` makes.
CASES = {
    "sweep --run={run}": {
        "": MODELS,
        "--checkpoint={model},": MODELS,
        "--checkpoint={model},{model}": "model 'tiny'",
        "--reward-of={language},{before} --config.beta=0": "beta=0.0",
        "--reward-of={language},{before} --config.form=x": "form='x'; allowed: 'pretrained', 'ch",
        "--reward-of={language},{before} --config.lens": "lens=True with --reward-of",
        "--reward-of={language},{before} --checkpoint=x": "--checkpoint with --reward-of",
        "--reward-of={language},{before} --shard=1/2": "--shard with --reward-of",
    },
    "sweep --checkpoint={model}": {"": "--run is missing"},
    "sweep --checkpoint={model} --run={run}": {
        "--chekpoint=x": "--chekpoint is no flag (did you mean 'checkpoint'?)",
        "--config.stepsize=8": "--config has no key 'stepsize' (did you mean 'step_si",
        "--config.part_size=many": "--config.part_size=many",
        "typo": "typo: no such folder",
        "--config.prompts=greatst": "prompts='greatst' (did you mean 'greatest'?)",
        "--config.prompts=": "nothing to score",
        "--prompt=Why? --config.prompts=greatest": "--prompt beside --config.prompts",
        "--prompt=\udcff": "argument '--prompt=\\udcff': not UTF-8",
        "--config.dtype=fp8": "dtype='fp8'; allowed: 'bfloat16', 'float16', 'float32'",
        "--config.mesh.model=3": "mesh.model=3",
        "--config.step_size=0": "step_size=0; allowed: integers >= 1",
        "--config.beta=2": "beta=2.0",
        "--after=": "--after='': empty",
        "--prompt=a␟b": "prompt: holds the character '␟'",
        "--prompt='  '": "prompt='  '",
        f"--prompt='{'the ' * 130}'": " 128",
        "--config.after.rows=3": "--config.after.rows without --after_items",
        "--after_items={tmp}/words.txt --config.after.of=best": "after.of='best'",
        "--after_items={tmp}/words.txt --config.after.rows=0": "after.rows=0",
        "--after_items={tmp}/prompts.csv --prompt=Why?": "leave out --prompt",
        "--after=x --reward-of=a,b": "--reward-of with --after",
        "{tmp}/no-model --after_items={tmp}/no.jsonl": "--after_items={tmp}/no.jsonl",
        "--shard=0/2": f"shard='0/2'; {OF_SHARDS}",
        "--coordinator=here --processes=2 --process=0": "coordinator 'here'; allowed: host:port",
        "--coordinator=h:1234 --processes=2 --process=2": "process 2 of 2",
    },
    "score --checkpoint={model} --run={run}": {
        "--items={tmp}/words.txt --name=../words": "'../words'",
        "--items={tmp}/no-name.csv": "items={tmp}/no-name.csv: no column 'name'; it has word, n",
        "--items={tmp}/bare.jsonl": "items={tmp}/bare.jsonl: no column 'name'; it has none",
        "--items={tmp}/empty-line.txt": "line 2",
        "--items={tmp}/words.txt --column=word": "--column='word'",
        "--items={tmp}/empty.txt": "empty.txt: no replies",
        "--items={tmp}/empty.jsonl": "empty.jsonl: an empty file",
        "--items={tmp}/header.csv": "header.csv: no replies",
        "--items={tmp}/array.jsonl": "array.jsonl: a JSON array",
        "--items={tmp}/surrogate.jsonl": "jsonl: column 'reply', row 2",
        "--items={tmp}/list.json": "list.json; allowed: a .txt",
        "--items={tmp}/words.txt --probes": "--probes: no pairs",
        "--items={tmp}/prompts.csv --probes": "--probes: no pairs",
        "--items={tmp}/pairs.csv --name=a.probes": "list 'a.probes'",
        "--items={tmp}/texts.csv --prompt=Why? --prompt=How?": "one --prompt",
        "--items={tmp}/missing.txt": "items={tmp}/missing.txt: No such file or directory",
        "--items={tmp}/prompts.csv --prompt=Why?": OF_PAIRS + "prompt",
    },
    "score --reward-of={language},{before} --run={run} --items={tmp}/words.txt": {
        "--config.mode=ids": "mode='ids' with --reward-of"
    },
    "logprobs --run={run}": {
        "--checkpoint={model}": "a reward model; allowed: a language model",
        "--checkpoint={language} --items={tmp}/prompts.csv --prompt=Why?": ("(column 'prompt')"),
    },
    "logprobs --checkpoint={language} --run={run} --name=x": {"": "--name without --items"},
    "report {model} --prompt=Why? --config.prompts=best --out={run}": {
        "": "--prompt beside --config.prompts"
    },
    "search": {
        "--config.steps.x=1": "--config has no key 'x'",
        "--config=": "--config: No such file or directory: ''",
    },
    "search --checkpoint={model} --run={run} --config.length=3 --config.topk=16 "
    "--config.candidates=12": {
        "--config.allow={tmp}/none.txt": "allow={tmp}/none.txt",
        "--config.method=beam": "method='beam'; allowed: 'gcg', 'paper', 'random'",
        "--config.length=120": "179 tokens; allowed by the model: 128",
        "--config.allow={tmp}/eos.txt": "filters",
        "--config.method=paper --config.candidates=300 --config.length=1": "candidates=300; ",
    },
    "convert --source={judge} --checkpoint={tmp}/c --config.template_vars": {
        "=principle=a,principel=b": "'principel'; allowed: principle",
        "=messages=x": "template_vars: messages",
        "=bos_token=x": "template_vars: bos_token",
        "=principle": "template_vars='principle'",
        "=principle=a,principle=b": "each name once",
    },
    "watch": {
        "": "--folder",
        "{tmp}/nowhere": "--folder=['{tmp}/nowhere']",
        "{tmp} --config.prompts=paper": "3 prompts; allowed: one",
        "{tmp} --config.every=0": "every=0",
        "{tmp} --config.limits.accuracy=0.5": "--config.limits.accuracy needs --items",
        "{tmp} --log=paper": "log='paper'; allowed: trackio, wandb, tensorboard",
        "{tmp} --once": "no step is scored",
        "{small} --config.prompts=best": "training='' under 'best'",
    },
    "analyze --report={tmp}/report": {
        "": "--run is missing",
        "--run={tmp}/nowhere": "{tmp}/nowhere: not a run folder",
        "--run={small} --config.options.afinn=nowhere.csv": ("analyze.options.afinn='nowhere.csv'"),
        "--run={small} --config.options.afinn={tmp}/words.txt": ("{tmp}/words.txt"),
        "--run={small} --config.figure_top=99": "analyze.figure_top=99; allowed: at most top=",
        "--run={small} --config.page_prompts=-1": "analyze.page_prompts=-1; allowed: integers >= 1",
    },
    "import_scores --layout=tokens --run={run}": {
        "--source=x": "source=x",
        "--source=x --items=w": "--items='w' with layout 'tokens'",
    },
    "plan": {
        "": "--source is missing",
        "--source=gemma-2-2b --config.prefix=9999": "prefix=9999; allowed: 1 to 8192",
        "--source=gemma-2-2b --config.step_size=0": "step_size=0; allowed: ",
        "--source={tmp}/config.json": "config.json",
    },
    "reproduce --root={tmp}/root": {
        "--models=grm-gemma-2b": "models='grm-gemma-2b'; allowed: 'qrm-gemma-2-27b', ",
        "--source-dir=/nowhere": "--source-dir=/nowhere: ",
        "--elo=/nowhere.csv": "source=/nowhere.csv: No such file",
        "--source-dir={tmp} --models=grm-gemma2-2b-rewardmodel-ft": (
            "Ray2333/GRM-gemma2-2B-rewardmodel-ft"
        ),
    },
    "diff --before={model} --after={model} --run={run} --report={tmp}/report": {
        "--config.limits.probe=1 --items={tmp}/pairs.csv": "--config.limits.probe needs --probes",
        "--config.limits.probe=nan --probes": "diff.limits.probe=nan",
        "--config.limits.accuracy=0.5": "--config.limits.accuracy needs --items",
    },
    "verify --run={run}": {"--rescore=5": "--rescore and --checkpoint"},
}
LINES = [
    (f"{command}{'' if flags[:1] == '=' else ' '}{flags}", text)
    for command, rows in CASES.items()
    for flags, text in rows.items()
]


@pytest.fixture
def place(checkpoint, tmp_path):
    """Text with names in braces -> the text with the folders and checkpoints of those names."""
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
    makers = {
        "model": lambda: checkpoint().path,
        "language": lambda: checkpoint("lm", head="lm").path,
        "before": lambda: checkpoint("lm-before", head="lm", seed=7).path,
        "judge": lambda: tiny.write_model(
            tmp_path / "hf", template="{{ principle }}" + tiny.CHATML
        ),
        "small": lambda: runs.small_run(tmp_path / "small"),
        "run": lambda: tmp_path / "run",
        "tmp": lambda: tmp_path,
    }

    def placed(text):
        used = {name: make() for name, make in makers.items() if f"{{{name}}}" in text}
        return text.format(**used) if used else text

    return placed


@pytest.mark.parametrize(("line", "message"), LINES)
def test_bad_input_is_one_line_and_nothing_is_written(command, place, tmp_path, line, message):
    name, *flags = shlex.split(place(line))
    before = sorted(tmp_path.rglob("*"))
    refused = command(name, *flags).refusal()
    assert refused.startswith(f"{name}: ") and place(message) in refused
    assert sorted(tmp_path.rglob("*")) == before
