"""What a notebook imports, as the first kernel that has run it answers in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Variables that libraries read when they are imported; later it is too late to set them. CUDA
#: reads those of its devices and of MPS when it is initialised, torch that of its allocator when it
#: first uses CUDA; each trial has its own.
_READ_AT_IMPORT = (
    r"(PYTHON(?!HASHSEED)|LD_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|NUMBA_|NPY_|TF_|XLA_|"
    r"JAX_|KERAS_|HF_|TRANSFORMERS_|TORCH|PYTORCH_(?!(CUDA_)?ALLOC_CONF)|"
    r"CUDA_(?!VISIBLE_DEVICES|MPS_)|MPL(?!BACKEND)|TZ$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProfile:
    """What the notebook needs of a kernel.

    Attributes:
        modules: installed modules that the notebook has imported, in order.
        environment: variables that its cells have set, of those that libraries read when imported.
        version: of this package, where the notebook has imported a copy that its environment has.
    """

    modules: Sequence[str]
    environment: Mapping[str, str]
    version: str | None = None

    @classmethod
    def read(cls, answer: str, env: Mapping[str, str]) -> ImportProfile:
        """Read a kernel's answer to `IMPORT_PROFILE`.

        Args:
            env: what the kernel was started with.
        """
        data = json.loads(answer)
        changed = {k: v for k, v in data["environment"].items() if env.get(k) != v}
        return cls(modules=data["modules"], environment=changed, version=data["version"])

    def encode(
        self, *, argv: Sequence[str], without: frozenset[str], frozen: Path | None = None
    ) -> bytes:
        """As the zygote reads it.

        Args:
            argv: of every kernel, but for its connection file.
            without: modules that each kernel imports for itself.
            frozen: the file with the modules that kernels import from a snapshot.
        """
        message = {
            "modules": [name for name in self.modules if name not in without],
            "environment": dict(self.environment),
            "argv": list(argv),
            "frozen": None if frozen is None else str(frozen),
        }
        return json.dumps(message).encode()


#: An expression for a kernel: what it has imported, in order, from where it is installed. An
#: environment on top of another one, as `uv run --with` or `--system-site-packages` make it, has
#: libraries outside of its own folders.
IMPORT_PROFILE = (
    "(lambda s, o, p: __import__('json').dumps({'modules': [n for n, m in list(s.modules.items()) "
    "if getattr(getattr(m, '__spec__', None), 'name', None) == n and "
    "(lambda f: f in ('built-in', 'frozen') or f.startswith(p) or "
    "not {'site-packages', 'dist-packages'}.isdisjoint(f.split(o.sep)))(str(m.__spec__.origin))], "
    "'environment': {k: v for k, v in o.environ.items() if __import__('re').match("
    f"{_READ_AT_IMPORT!r}, k)}}, "
    "'version': next((d.version for d in __import__('importlib.metadata').metadata.distributions("
    "name='notebook-hpo')), None) if 'sweeper' in s.modules else None}))("
    "__import__('sys'), __import__('os'), tuple("
    "v for k, v in __import__('sysconfig').get_paths().items() "
    "if k in ('stdlib', 'platstdlib', 'purelib', 'platlib')))"
)
