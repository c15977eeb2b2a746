"""Expressions that a kernel evaluates beside the cells; they leave no name in the notebook."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...notebook_api import replicability
from ..forking.zygote import finders

_PACKAGE_FOLDER = Path(__file__).parents[2]

#: Two things that keep an ipykernel from ending in order. It closes the thread that sends its
#: messages while the one that took the request to shut down may still have one to send, and then
#: waits for ever; so that thread is waited for first, before the notebook's own exit handlers. And
#: it waits up to 14 s for children that have ended, but whose exit code was not read.
ORDERLY_EXIT = (
    "(lambda kernel: (__import__('atexit').register(kernel.parent.control_thread.join, 2), "
    "setattr(kernel, '_process_children', lambda all=kernel._process_children: "
    "[child for child in all() if child.status() != 'zombie'])))(get_ipython().kernel)"
)
_FINDERS = Path(finders.__file__).read_text(encoding="utf-8")


def set_environment(env: Mapping[str, str]) -> str:
    """Code that sets the variables of a trial in a kernel that was started before."""
    return f"__import__('os').environ.update({dict(env)!r})\n"


def find_modules(frozen: Mapping[str, str]) -> str:
    """Code for a started kernel: it finds this package and frozen modules, and libraries report.

    Args:
        frozen: the sources of those modules, by their absolute paths without links.
    """
    return (
        "(lambda names, text: (exec(text, names), "
        f"names['make_importable']({str(_PACKAGE_FOLDER)!r}), "
        f"names['install_snapshot_finder'](text, {dict(frozen)!r}), "
        "names['observe_libraries']()))"
        f"({{'__name__': 'sweeper_finders'}}, {_FINDERS!r})\n"
    )


#: Code for a forked kernel, which has the finders, under the name that they have in its zygote.
OBSERVE_LIBRARIES_IN_FORK = (
    "__import__('sys').modules['_sweeper_zygote.finders'].observe_libraries()\n"
)

#: torch before 2.13 refuses to use CUDA at all where it does not know a key.
_CAP = """
import contextlib, os
from importlib import metadata
with contextlib.suppress(ImportError, ValueError):
    version = [int(part) for part in metadata.version("torch").split(".")[:2]]
    if version >= [2, 13] and not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & {*os.environ}:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "per_process_memory_fraction:%.4f"
"""


def cap_memory(fraction: float) -> str:
    """Code that has torch take no more than a fraction of its GPU, unless users have set it up.

    It is to run before the cells: torch reads the setting when it first uses CUDA, so it acts in a
    forked kernel, too.
    """
    return f"exec({_CAP % fraction!r}, {{}})\n"


#: Variables that libraries read when they are imported; later it is too late to set them. CUDA
#: reads those of its devices and of MPS when it is initialised, torch that of its allocator when it
#: first uses CUDA; each trial has its own.
_READ_AT_IMPORT = (
    r"(PYTHON(?!HASHSEED)|LD_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|NUMBA_|NPY_|TF_|XLA_|"
    r"JAX_|KERAS_|HF_|TRANSFORMERS_|TORCH|PYTORCH_(?!(CUDA_)?ALLOC_CONF)|"
    r"CUDA_(?!VISIBLE_DEVICES|MPS_)|MPL(?!BACKEND)|TZ$)"
)

#: An expression for a kernel: what it has imported, in order, from where it is installed. An
#: environment on top of another one, as `uv run --with` or `--system-site-packages` make it, has
#: libraries outside of its own folders.
IMPORT_PROFILE = (
    "(lambda s, o, p: __import__('json').dumps({'modules': [n for n, m in list(s.modules.items()) "
    "if getattr(getattr(m, '__spec__', None), 'name', None) == n and "
    "(lambda f: f in ('built-in', 'frozen') or f.startswith(p) or "
    "not {'site-packages', 'dist-packages'}.isdisjoint(f.split(o.sep)))(str(m.__spec__.origin))], "
    "'environment': {k: v for k, v in o.environ.items() if __import__('re').match("
    f"{_READ_AT_IMPORT!r}, k)}}}}))("
    "__import__('sys'), __import__('os'), tuple("
    "v for k, v in __import__('sysconfig').get_paths().items() "
    "if k in ('stdlib', 'platstdlib', 'purelib', 'platlib')))"
)

#: The most memory that torch has held on the GPUs of its process.
GPU_BYTES = (
    "(lambda cuda: sum(cuda.max_memory_reserved(n) for n in range(cuda.device_count())) "
    "if cuda.is_initialized() else None)(__import__('sys').modules['torch'].cuda)"
)

#: The operations that torch has warned about as not replicable.
NOT_REPLICABLE = f"__import__('sys').modules[{replicability.__name__!r}].not_replicable()"


def value_in(answers: Mapping[str, Any], name: str) -> Any:
    """The value of an expression among a kernel's answers; None where it raised."""
    answer = answers.get(name, {})
    return ast.literal_eval(answer["data"]["text/plain"]) if answer.get("status") == "ok" else None
