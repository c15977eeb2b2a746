"""What a notebook imports, as the first kernel that has run it answers in the end."""

from __future__ import annotations

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
