"""What the names of parameters tell: families of names, and of values."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def words(name: str) -> list[str]:
    """The words of a name, in small letters: `batchSize`, `batch_size` and `BATCH_SIZE` alike."""
    return [word.lower() for word in _PARTS.findall(name)]


def about(name: str, family: Iterable[str]) -> bool:
    """Whether a name has a word of the family; a family's `a_b` are two words in a row."""
    joined = f"_{'_'.join(words(name))}_"
    return any(f"_{member}_" in joined for member in family)


def _family(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Given to each trial anew.
INJECTED = ("seed", "run_id")
#: More is slower and mostly better: to sweep it only tells that.
BUDGETS = _family(
    "epoch epochs step steps iter iters iteration iterations max_iter n_iter num_iter rounds "
    "patience max_time time_limit n_samples num_samples n_train max_samples n_episodes episodes "
    "timesteps subset"
)
#: About the machine, the files, the display: not about the model.
SURROUNDINGS = _family(
    "path paths dir directory folder root file files filename fname url uri host port name tag "
    "tags note notes comment project entity user username email log logs logging logger verbose "
    "verbosity debug device devices gpu gpus cuda cpu cpus rank workers num_workers n_jobs jobs "
    "threads n_threads num_threads interval freq frequency every print plot plots show save saves "
    "download cache checkpoint checkpoints ckpt resume output outputs input inputs out experiment "
    "version verbosity progress smoke dry quick demo profile profiler wandb mlflow tensorboard "
    "visualize visualise overwrite force export upload pin prefetch figsize dpi fig title "
    "random_state seeds seed backend suffix prefix ext extension"
)
#: Facts about the data and the way to score it: other values make scores that do not compare.
DATA = _family(
    "dataset datasets data split splits n_splits folds fold n_folds cv test_size val_size "
    "valid_size train_size test_frac val_frac test_fraction val_fraction val_ratio test_ratio "
    "train_ratio train_frac validation_split holdout classes n_classes num_classes labels vocab "
    "vocab_size image_size img_size in_channels input_dim output_dim in_dim out_dim n_inputs "
    "n_outputs num_inputs num_outputs n_features num_features in_features out_features input_size "
    "output_size num_labels metric metrics scoring target targets columns column threshold_score"
)
#: What is trained: its words are known, but often some of them are for trying out only.
MODELS = _family("arch architecture model backbone encoder decoder")
SECRETS = _family("token password passwd secret credential credentials api_key apikey")

RATES = _family("lr learning_rate learningrate eta step_size")
SCALES = _family(
    "weight_decay wd decay l1 l2 alpha reg reg_lambda reg_alpha lambda lam regularization "
    "regularisation penalty eps epsilon tol c svm_c"
)
#: On a scale, too, but a decade off is out of all reason.
NARROW = _family(
    "temperature temp tau sigma noise std bandwidth length_scale coef coeff clip grad_norm "
    "clip_norm max_norm grad_clip"
)
SHARES = _family(
    "subsample colsample bytree bylevel bynode max_features fraction frac ratio prob proba "
    "probability p mixup cutmix mask crop q quantile threshold l1_ratio"
)
DROPOUTS = _family("dropout drop drop_rate drop_path droppath drop_prob dropout_rate")
SMOOTHING = _family("label_smoothing smoothing")
MOMENTA = _family("momentum beta1 beta_1 nesterov")
AVERAGES = _family("beta2 beta_2 ema ema_decay polyak")
DISCOUNTS = _family("gamma discount")

BATCHES = _family("batch batchsize bs batch_size")
SIZES = _family(
    "width hidden units unit channels channel dim dims size embed embedding emb filters filter "
    "neurons features feature ff ffn mlp heads nhead n_head head rank proj projection latent "
    "context seq len length capacity bins leaves num_leaves max_bin"
)
DEPTHS = _family("depth layers layer n_layers num_layers blocks block stages max_depth")
CROWDS = _family("estimators n_estimators trees num_boost_round boost num_trees")

#: Words that stand for one another, as libraries spell them, and the names that hold them.
_WORDS = [
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


def is_setting(name: str) -> bool:
    """Whether a name is one that people give to what they tune, or to a budget."""
    return name in INJECTED or about(name, _SETTINGS)


_SETTINGS = frozenset().union(
    *(BUDGETS, RATES, SCALES, NARROW, DROPOUTS, SMOOTHING, MOMENTA, AVERAGES, DISCOUNTS),
    *(SHARES, BATCHES, SIZES, DEPTHS, CROWDS, {"optimizer", "activation", "random_seed"}),
)


def kin(name: str, value: str) -> list[str]:
    """Words that a parameter of this name and value could hold instead; empty when none is known.

    They are spelled as the value is.
    """
    for names, text in _WORDS:
        family = text.split()
        lowered = [word.lower() for word in family]
        if not about(name, names.split()) or value.lower() not in lowered:
            continue
        for spelled in (lowered, family, [word.upper() for word in family]):
            if value in spelled:
                return spelled
    return []
