"""Texts of parameters files: valid ones, and wrong ones with parts of their error messages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from sweeper.settings import Settings

#: Loads a text as a parameters file.
Load = Callable[[str], Settings]

SMALLEST = """\
objective: {val_acc: maximize}
space:
  lr: {low: 1e-4, high: 1e-1, log: true}
  batch_size: [32, 64, 128]
"""

#: A valid parameters file that states every key.
EVERYTHING = (Path(__file__).parents[2] / "docs" / "every-key.yml").read_text("utf-8")

OBJECTIVE = "objective: {val_acc: maximize}\n"
SPACE = "space: {lr: {low: 1e-4, high: 1e-1}, opt: [sgd, adam]}\n"
BOTH = OBJECTIVE + SPACE
INPUT = "inputs: {e: {study: p, artifact: m, take: "


#: Files that are not valid YAML, with fragments of the error messages.
NOT_YAML: list[tuple[str, list[str]]] = [
    # the file as a whole
    ("objective: {a: maximize", ["line 1", "not valid YAML"]),
    ("objective:\n\tval: maximize", ["line 2", "not valid YAML"]),
    (BOTH + "space: {x: [1]}", ["line 3", "not valid YAML", "'space' is given twice"]),
    ("a: b: c", ["line 1, column 5", "put text with a colon in quotes"]),
    ("a:\n  b: 1\n c: 2", ["line 3", "indent the keys of a mapping alike"]),
    (BOTH + "fixed: {a: *nope}", ["line 3", "'nope'", "put text that begins with *"]),
    (BOTH + "fixed: {a: @b}", ["line 3", "'@'", "in quotes"]),
    (BOTH + "fixed: {a: !foo 1}", ["line 3", "'!foo'", "leave the tag out"]),
    (BOTH + "fixed: {a: 'b}", ["line 3", "close the quote"]),
    (BOTH + "fixed: {a: [1, 2}", ["line 3", "close the bracket"]),
    (BOTH + "---\n" + BOTH, ["line 3", "one file has one document"]),
    (BOTH + "{a: 1}: 2", ["line 3", "a key must be text"]),
    (
        BOTH
        + "fixed: {a: &a [1, 1], "
        + ", ".join(f"{n}: &{n} [{', '.join(['*' + b] * 8)}]" for b, n in pairwise("abcdefgh"))
        + "}",
        ["aliases repeat more than 1,000,000 values"],
    ),
    (OBJECTIVE + "space: &a {a: [*a]}", ["a value contains itself"]),
    *(
        (BOTH + f"fixed: {{a: !!{tagged}}}", ["a tag such as !!int", "leave the tag out"])
        for tagged in ('int ""', 'float ""', "bool maybe")
    ),
    (BOTH + 'fixed: {a: "\\ud83d"}', ["line 3, column 12", "half of a character"]),
    (BOTH + 'fixed: {"\\ude00\\ud83d": 1}', ["line 3", "half of a character"]),
    ("\x00", ["not valid YAML", "special characters are not allowed"]),
    (BOTH + f"fixed: {{a: {'[' * 600}{']' * 600}}}", ["nested too deeply; write it flatter"]),
]

#: Files with wrong types or keys, which the JSON Schema refuses too.
WRONG_TYPES: list[tuple[str, list[str]]] = [
    # the file as a whole
    ("", ["expected a mapping with the keys objective and space", "null"]),
    ("- 1\n- 2", ["expected a mapping", "[1, 2]"]),
    (OBJECTIVE, ["space", "missing"]),
    (SPACE, ["objective", "missing, as in objective: {val_acc: maximize}"]),
    (BOTH + "trials: 3", ["unknown key 'trials'", "it belongs to study, as in study: {trials: …}"]),
    ("nbformat: 4", ["is a notebook; expected a parameters file"]),
    (BOTH + "studdy: {trials: 3}", ["'studdy'", "did you mean 'study'?"]),
    # study
    (BOTH + "study: {trials: 0}", ["study.trials", "1 or more", "got 0"]),
    (BOTH + "study: {trials: 2.5}", ["study.trials", "a whole number", "2.5"]),
    (BOTH + "study: {seed: 9223372036854775808}", ["study.seed", "less than"]),
    (BOTH + "study: {name: a/b}", ["study.name", "'a/b'", "use letters"]),
    (BOTH + "study: {name: 7}", ["study.name", "expected text", "7"]),
    (BOTH + "study: {sampler: tpo}", ["study.sampler", "'tpo'", "did you mean 'tpe'?"]),
    (
        BOTH + "study: {sampler: {n_startup_trials: 3}}",
        ["study.sampler", "{name: NAME, …options}", "got {n_startup_trials: 3}"],
    ),
    # objective
    (SPACE + "objective: {}", ["objective", "must not be empty"]),
    (SPACE + "objective: val_acc", ["objective", "{NAME: maximize}", "'val_acc'"]),
    (SPACE + "objective: {a: up}", ["objective.a", "'maximize' or 'minimize'", "'up'"]),
    (SPACE + "objective: {a: {take: last}}", ["objective.a.direction", "missing"]),
    # scores
    (BOTH + "scores: {val_acc: acc}", ["scores.val_acc", "variable, pattern", "'acc'"]),
    # space
    (OBJECTIVE + "space: {}", ["space is empty"]),
    (OBJECTIVE + "space: {lr: 0.1}", ["space.lr", "cannot read 0.1", "{low: …, high: …}"]),
    (
        OBJECTIVE + "space: {lr: {low: 1, high: 2, stepp: 1}}",
        ["space.lr", "'stepp'", "did you mean 'step'?"],
    ),
    (OBJECTIVE + "space: {lr: {low: 1.0, high: big}}", ["space.lr.high", "number", "'big'"]),
    (
        OBJECTIVE + "space: {lr: {type: real, low: 1, high: 3}}",
        ["space.lr", "'real'", "float, int or choice"],
    ),
    (OBJECTIVE + "space: {lr: {low: 1, high: 9, log: 3}}", ["space.lr.log", "true or false"]),
    (OBJECTIVE + "space: {opt: {choices: sgd}}", ["space.opt.choices", "a list", "'sgd'"]),
    (OBJECTIVE + "space: {learning-rate: [1]}", ["space.learning-rate", "underscores"]),
    (OBJECTIVE + "space: {lr: {min: 1, max: 2}}", ["space.lr", "{low: 1, high: 2}"]),
    (OBJECTIVE + "space: {lr: 'tune.loguniform(1e-4, 1)'}", ["{low: …, high: …, log: true}"]),
    (BOTH + "method: bayes", ["'method'", "study: {sampler: gp}"]),
    (SPACE + "metric: {name: loss, goal: minimize}", ["'metric'", "objective: {loss: minimize}"]),
    (SPACE + "objective: {name: loss, goal: minimize}", ["objective: {loss: minimize}"]),
    (SPACE + "direction: maximize", ["'direction'", "objective: {NAME: maximize}"]),
    (BOTH + "study: {n_trials: 30}", ["'n_trials'", "study: {trials: 30}"]),
    (BOTH + "early_terminate: {type: hyperband}", ["study: {pruner: auto}"]),
    (BOTH + "study: {sampler: TPESampler}", ["'TPESampler'", "tpe"]),
    (OBJECTIVE + "space: {lr: {choices: [1], low: 1}}", ["space.lr", "'low'", "choices"]),
    # branches
    (BOTH.replace("1e-1}", "1e-1, when: opt}"), ["space.lr.when", "a mapping", "'opt'"]),
    # fixed and start
    (BOTH + "fixed: {a.b.c: 1}", ["fixed.a.b.c", "write b.c"]),
    (BOTH + "fixed: {a..c: 1}", ["fixed.a.", "not a Python identifier"]),
    (BOTH + "learn_from: earlier", ["learn_from", "a list"]),
    # inputs
    (BOTH + "inputs: {e: pretrain}", ["inputs.e", "the keys study, artifact, take", "'pretrain'"]),
    (BOTH + INPUT + "bst}}", ["inputs.e.take", "expected best, or a run id such as", "got 'bst'"]),
    (BOTH + INPUT + "[0003]}}", ["inputs.e.take", "a run id such as", "got [3]"]),
    # limits and resources
    (BOTH + "limits: {trial: soon}", ["limits.trial", "'soon'", "90s"]),
    (BOTH + "limits: {cell_output: lots}", ["limits.cell_output", "'lots'", "10MB"]),
    (BOTH + "resources: {gpus: all}", ["resources.gpus", "'all'", "auto, none or a list"]),
    (BOTH + "resources: {gpus: [-1]}", ["resources.gpus", "[-1]"]),
    # pruner, cost and execution
    (BOTH + "cost: {price_per_hour: 0}", ["cost.price_per_hour", "more than 0"]),
    (BOTH + "kernels: hot", ["kernels", "'auto', 'fork' or 'cold'", "'hot'"]),
]

#: Files with wrong values, which only loading finds.
WRONG_VALUES: list[tuple[str, list[str]]] = [
    (SMALLEST + "sync: 'abfs://b/x?sig=hush'", ["sync", "'abfs://b/x' was given with credentials"]),
    (SMALLEST + "data: {path: d, source: s3://b}", ["unknown key 'source'", "path, from, version"]),
    (
        SMALLEST + "data: {path: d, from: ./b}",
        ["data.from: './b' is not a URL; expected something"],
    ),
    (
        SMALLEST + "data: {path: d, from: 's3://me:hush@b/x'}",
        ["data.from: 's3://…@b/x' was given with credentials"],
    ),
    (SMALLEST + "data: {path: d, from: s3://b, version: 5000}", ["in quotes", "got 5000"]),
    (
        SMALLEST + "cluster: 10.0.0.5:8786",
        ["cluster: url: expected the address of a Dask", "local:N", "got '10.0.0.5:8786'"],
    ),
    (
        SMALLEST + "cluster: tcp://10.0.0.5:8786",
        ["cluster: url: tcp://10.0.0.5:8786 is another host without encryption", "insecure: true"],
    ),
    (SMALLEST + "cluster: {max: 8}", ["cluster: expected exactly one of url and class"]),
    (
        SMALLEST + "cluster: {url: local:2, max: 8}",
        ["cluster: max: this key belongs to `class`"],
    ),
    (SMALLEST + "cluster: {class: SLURMCluster}", ["cluster: class: expected a class with its"]),
    # study
    (BOTH + "study: {sampler: {name: tpe, 3: 4}}", ["study.sampler", "tpe has no option 3"]),
    (
        BOTH + "study: {order: fixed, pruner: {name: asha}}",
        ["study.order: fixed", "study.pruner: asha", "set study.pruner to none, or study.order to"],
    ),
    # objective
    (SPACE + "objective: {1: maximize}", ["objective.1", "a name must be text"]),
    (SPACE + "objective: {'': maximize}", ["objective", "a score needs a name"]),
    # confirm
    (
        SPACE + "objective: {a: maximize, b: minimize}\nconfirm: {best: 2}",
        ["confirm: needs a single objective", "there are 2 (a, b)", "leave it out"],
    ),
    (BOTH + "repeat: {}", ["repeat", "{seeds: 3} or {fold: 5}"]),
    (
        BOTH + "repeat: {seeds: 3}\nstudy: {trials: 2}",
        ["repeat: needs study.trials: 3 or more", "got 2"],
    ),
    (
        BOTH + "repeat: {fold: 3}\nfixed: {fold: 1}",
        ["repeat: sets 'fold'", "remove it from the other sections"],
    ),
    (BOTH + "repeat: {fold: 3}\nconfirm: {}", ["repeat", "fresh seeds", "gives each run a fold"]),
    (BOTH + "confirm: {}\nfixed: {seed: 1}", ["confirm", "'seed'", "remove it from fixed"]),
    # scores
    (BOTH + "scores: {val_acc: {}}", ["scores.val_acc", "exactly one of"]),
    (
        BOTH + "scores: {val_acc: {variable: my-acc}}",
        ["scores.val_acc", "my-acc", "not a Python identifier"],
    ),
    (
        BOTH + "scores: {a: {expression: 'f('}}",
        ["scores.a", "'f('", "not a valid Python expression"],
    ),
    (
        BOTH + f"scores: {{a: {{expression: '{'-' * 20_000}1'}}}}",
        ["scores.a", "not a valid Python expression"],
    ),
    (BOTH + "scores: {a: {pattern: '(['}}", ["scores.a", "not a regular expression"]),
    (BOTH + "scores: {a: {pattern: 'x=1'}}", ["scores.a", "'x=1'", "has no group"]),
    # space
    (OBJECTIVE + "space: {lr: {low: 2, high: 1}}", ["space.lr", "low (2)", "high (1)", "swap"]),
    (OBJECTIVE + "space: {lr: {low: 1.0, high: .inf}}", ["space.lr.high", "finite", "inf"]),
    (
        OBJECTIVE + "space: {lr: {low: -1.7e308, high: 1.7e308}}",
        ["space.lr", "-1.7e+308 to 1.7e+308 is wider than", "1.8e308", "narrow it"],
    ),
    (
        OBJECTIVE + "space: {lr: {low: 0.0, high: 1e308, step: 1e-308}}",
        ["space.lr", "more than 9007199254740992 steps", "make it larger"],
    ),
    (OBJECTIVE + "space: {lr: {low: 0.0, high: 1.0, log: true}}", ["space.lr", "low > 0"]),
    (
        OBJECTIVE + "space: {lr: {low: 1, high: 9, log: true, step: 2}}",
        ["space.lr", "log: true and step exclude each other"],
    ),
    (OBJECTIVE + "space: {lr: {low: 1, high: 9, step: 0}}", ["space.lr", "step", "got 0"]),
    (OBJECTIVE + "space: {opt: [a, b, a]}", ["space.opt", "'a' is listed twice"]),
    (OBJECTIVE + "space: {opt: [1, true]}", ["space.opt", "1 and true are equal", "keep one"]),
    (BOTH + "fixed: {a: .nan}", ["fixed.a", "expected a finite number", ".nan"]),
    (BOTH + "smoke: {a: [1, {b: .nan}]}", ["smoke.a", "expected a finite number", ".nan"]),
    (
        OBJECTIVE + "space: {n: {low: 1, high: 99999999999999999999}}",
        ["space.n.high", "9007199254740992 or less", "99999999999999999999"],
    ),
    (OBJECTIVE + "space: {lr: [0.1, .nan]}", ["space.lr.1", "finite number", "got .nan"]),
    (OBJECTIVE + "space: {a: [[1, .inf], [2]]}", ["space.a.0", "finite", "got [1, .inf]"]),
    (OBJECTIVE + "space: {a: [{1: 2}, [2]]}", ["space.a.0", "must be text", "got {1: 2}"]),
    (OBJECTIVE + "space: {a: [{x: 1, y: 2}, {y: 2, x: 1}]}", ["space.a", "is listed twice"]),
    # branches
    (
        BOTH.replace("1e-1}", "1e-1, when: {optt: sgd}}"),
        ["space.lr.when", "'optt'", "did you mean 'opt'?"],
    ),
    (
        BOTH.replace("1e-1}", "1e-1, when: {opt: sdg}}"),
        ["space.lr.when.opt", "'sdg' never occurs", "'sgd', 'adam'"],
    ),
    (
        OBJECTIVE + "space: {a: {choices: [1], when: {b: 1}}, b: {choices: [1], when: {a: 1}}}",
        ["a, b", "in a circle"],
    ),
    (BOTH.replace("1e-1}", "1e-1, when: {lr: 1}}"), ["space.lr.when", "'lr' is a range"]),
    (BOTH.replace("1e-1}", "1e-1, when: {opt: {a: 1}}}"), ["lr.when.opt: {a: 1} never occurs"]),
    (
        OBJECTIVE + "space: {a: [[8], [8, 8]], b: {choices: [1], when: {a: [8, 8]}}}",
        ["space.b.when.a: 8 never", "one of [8], [8, 8]", "to mean the list, write [[8, 8]]"],
    ),
    # fixed and start
    (BOTH + "fixed: {lr: 0.1}", ["'lr' is in both space and fixed"]),
    (SPACE + "objective: {a: maximize, b: minimize}\nlearn_from: [e]", ["learn_from", "single"]),
    (BOTH + "start: [{}, {lrr: 0.01}]", ["start[1]", "'lrr'", "did you mean 'lr'?"]),
    (BOTH + "start: [{lr: 0.5}]", ["start[0]", "0.5", "from 0.0001 to 0.1"]),
    (BOTH + "start: [{opt: rms}]", ["start[0]", "'rms'", "one of 'sgd', 'adam'"]),
    (BOTH + "fixed: {a: !!binary aGk=}", ["fixed.a", "expected a number", "binary data"]),
    (
        BOTH.replace("1e-1}", "1e-1, when: {opt: sgd}}") + "start: [{opt: adam, lr: 0.01}]",
        ["start[0]", "'lr' does not exist when opt is 'adam'", "leave it out"],
    ),
    (BOTH + "fixed: {e: 1}\nstart: [{e: 1}]", ["start[0]", "'e' is not in the space"]),
    # inputs
    (
        BOTH + "inputs: {e: {study: p, artifact: ../m}}",
        ["e.artifact", "'../m'", "plain file name"],
    ),
    (BOTH + "inputs: {lr: {study: p, artifact: m}}", ["'lr' is in both inputs and space"]),
    # limits and resources
    (BOTH + "limits: {trial: 99999d}", ["limits.trial", "'99999d' is too long", "10 years"]),
]

SHORT_AND_LONG = """\
study: {sampler: {name: tpe, n_startup_trials: 5}, pruner: {name: asha}, stop_after_failures: null}
objective: {val_acc: maximize, 'F1 (macro)': {direction: maximize}}
scores: {val_acc: {variable: acc, pattern: null}}
space:
  größe: [3, 2.5, true, null, text]
  opt: {choices: [a, b], type: categorical}
  n: {low: 1, high: 9, step: 2, when: {opt: [a, b]}}
  m: {type: choice, choices: [1], when: {opt: a}}
  layers: [[], [32], [64, 64], 8, {conv: [3, 3], pool: null}, [[1], [1.0], [true]]]
  apart: {choices: [[1], [1.0], [true], '[1]', 'json:[1]']}
  deep: {low: 1, high: 2, when: {layers: [[], [64, 64], {conv: [3, 3], pool: null}], opt: a}}
  flat: {low: 1, high: 2, when: {layers: {conv: [3, 3], pool: null}}}
  x: {type: float, low: 1, high: 2, step: null}
fixed: {a: [1, {b: null}], c: null}
start: [{layers: [64, 64], apart: [1.0]}]
limits: {trial: 90.5, cell_output: 512 KiB}
resources: {gpus: [3], gpu_memory: 9GB, gpus_per_trial: 1, cpus_per_trial: 4}
kernels: cold
cost: null
"""
