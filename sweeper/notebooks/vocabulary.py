"""Word lists that classify a parameter by its name: rate, size, budget, path, secret and others.

Only this module knows which names people give to which kind of parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def words_of(name: str) -> list[str]:
    """Split a name into lowercase words: `batchSize`, `batch_size` and `BATCH_SIZE` are alike."""
    return [word.lower() for word in _PARTS.findall(name)]


def matches(name: str, entries: Iterable[str]) -> bool:
    """Whether a name has a word that is among the entries; `a_b` stands for two words in a row."""
    joined = f"_{'_'.join(words_of(name))}_"
    return any(f"_{entry}_" in joined for entry in entries)


def _entries(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: A sweep injects another value into each trial.
INJECTED = ("seed", "run_id")
#: A greater value is slower and mostly better, so that a sweep over it finds nothing else.
BUDGETS = _entries(
    "epoch epochs step steps iter iters iteration iterations max_iter n_iter num_iter rounds "
    "patience max_time time_limit n_samples num_samples n_train max_samples n_episodes episodes "
    "timesteps subset"
)
#: The machine, files and display, which do not change the model.
ENVIRONMENT = _entries(
    "path paths dir directory folder root file files filename fname url uri host port name tag "
    "tags note notes comment project entity user username email log logs logging logger verbose "
    "verbosity debug device devices gpu gpus cuda cpu cpus rank workers num_workers n_jobs jobs "
    "threads n_threads num_threads interval freq frequency every print plot plots show save saves "
    "download cache checkpoint checkpoints ckpt resume output outputs input inputs out experiment "
    "version verbosity progress smoke dry quick demo profile profiler wandb mlflow tensorboard "
    "visualize visualise overwrite force export upload pin prefetch figsize dpi fig title "
    "random_state seeds seed backend suffix prefix ext extension"
)
#: The data and how a score is computed: scores under different values cannot be compared.
DATA = _entries(
    "dataset datasets data split splits n_splits folds fold n_folds cv test_size val_size "
    "valid_size train_size test_frac val_frac test_fraction val_fraction val_ratio test_ratio "
    "train_ratio train_frac validation_split holdout classes n_classes num_classes labels vocab "
    "vocab_size image_size img_size in_channels input_dim output_dim in_dim out_dim n_inputs "
    "n_outputs num_inputs num_outputs n_features num_features in_features out_features input_size "
    "output_size num_labels metric metrics scoring target targets columns column threshold_score"
)
#: What is trained. A notebook often supports more models than its author wants to sweep.
MODELS = _entries("arch architecture model backbone encoder decoder")
SECRETS = _entries("token password passwd secret credential credentials api_key apikey")

RATES = _entries("lr learning_rate learningrate eta step_size")
LOG_SCALES = _entries(
    "weight_decay wd decay l1 l2 alpha reg reg_lambda reg_alpha lambda lam regularization "
    "regularisation penalty eps epsilon tol c svm_c"
)
#: Sampled on a logarithmic scale too, but ten times more or less is unreasonable.
NARROW_SCALES = _entries(
    "temperature temp tau sigma noise std bandwidth length_scale coef coeff clip grad_norm "
    "clip_norm max_norm grad_clip"
)
FRACTIONS = _entries(
    "subsample colsample bytree bylevel bynode max_features fraction frac ratio prob proba "
    "probability p mixup cutmix mask crop q quantile threshold l1_ratio"
)
DROPOUTS = _entries("dropout drop drop_rate drop_path droppath drop_prob dropout_rate")
SMOOTHING = _entries("label_smoothing smoothing")
MOMENTA = _entries("momentum beta1 beta_1 nesterov")
AVERAGES = _entries("beta2 beta_2 ema ema_decay polyak")
DISCOUNTS = _entries("gamma discount")

BATCHES = _entries("batch batchsize bs batch_size")
SIZES = _entries(
    "width hidden units unit channels channel dim dims size embed embedding emb filters filter "
    "neurons features feature ff ffn mlp heads nhead n_head head rank proj projection latent "
    "context seq len length capacity bins leaves num_leaves max_bin"
)
DEPTHS = _entries("depth layers layer n_layers num_layers blocks block stages max_depth")
ENSEMBLES = _entries("estimators n_estimators trees num_boost_round boost num_trees")

#: Names of parameters, and the words that may replace each other as their values.
_ALTERNATIVES = [
    ("optimizer optimiser opt optim solver_name", "SGD Adam AdamW RMSprop"),
    ("activation act nonlinearity activation_fn act_fn", "ReLU GELU SiLU Tanh"),
    ("activation act nonlinearity activation_fn act_fn", "leaky_relu relu elu tanh"),
    ("activation act nonlinearity", "relu tanh logistic identity"),
    ("scheduler schedule lr_schedule sched lr_scheduler", "constant linear cosine"),
    ("kernel", "linear rbf poly"),
    ("criterion", "gini entropy log_loss"),
    ("weights", "uniform distance"),
    ("penalty", "l1 l2"),
    ("pool pooling", "mean max"),
    ("norm normalization normalisation", "batch layer none"),
    ("init initialization initializer", "xavier kaiming orthogonal"),
]


def is_known_parameter(name: str) -> bool:
    """Whether the name is usual for something that people tune, or for a budget."""
    return name in INJECTED or matches(name, _PARAMETERS)


_PARAMETERS = frozenset().union(
    *(BUDGETS, RATES, LOG_SCALES, NARROW_SCALES, DROPOUTS, SMOOTHING, MOMENTA, AVERAGES, DISCOUNTS),
    *(FRACTIONS, BATCHES, SIZES, DEPTHS, ENSEMBLES, {"optimizer", "activation", "random_seed"}),
)


def alternatives(name: str, value: str) -> list[str]:
    """List the values that a parameter of this name may have, spelled like the present one.

    The present value is among them; the list is empty where no alternative is known.
    """
    for names, text in _ALTERNATIVES:
        words = text.split()
        lowered = [word.lower() for word in words]
        if not matches(name, names.split()) or value.lower() not in lowered:
            continue
        for spelled in (lowered, words, [word.upper() for word in words]):
            if value in spelled:
                return spelled
    return []
