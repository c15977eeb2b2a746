"""Compare nested values bit for bit, by digests, so that large ones need not be kept."""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any


def digests(value: Any, name: str = "") -> dict[str, str]:
    """The digest of each tensor, array and plain value inside of a value, by its place.

    Args:
        value: tensors on any device, arrays, numbers, texts, and lists, tuples, mappings of these.
        name: of the whole value; places are named like `model.layer.weight` and `batch[0]`.
    """
    return dict(_digests(value, name))


def differing(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """The places at which two values differ, or which only one of them has."""
    return [place for place in {**left, **right} if left.get(place) != right.get(place)]


def _digests(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield name, f"mapping of {len(value)}"
        for key, inner in value.items():
            yield from _digests(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        yield name, f"sequence of {len(value)}"
        for index, inner in enumerate(value):
            yield from _digests(inner, f"{name}[{index}]")
    else:
        yield name, _digest(value)


def _digest(value: Any) -> str:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _digest_of_tensor(value.detach(), torch)
    if numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        kind = f"array {value.dtype} {value.shape}"
        return _hashed(kind, numpy.ascontiguousarray(value).tobytes())
    if isinstance(value, (set, frozenset)):  # in an order of its own
        value = sorted(map(repr, value))
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception:  # noqa: BLE001  pickling runs foreign code
        return type(value).__name__
    return _hashed(type(value).__name__, file.getvalue())


class _Pickler(pickle.Pickler):
    """Pickles equal objects to equal bytes: torch would store the addresses of tensors."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # without references to what is shared inside of the value

    def persistent_id(self, value: Any) -> str | None:
        torch = sys.modules.get("torch")
        is_tensor = torch is not None and isinstance(value, torch.Tensor)
        return _digest_of_tensor(value.detach(), torch) if is_tensor else None


def _digest_of_tensor(value: Any, torch: Any) -> str:
    kind = f"tensor {value.dtype} {tuple(value.shape)}"
    if value.is_quantized or value.layout is not torch.strided:
        value = value.dequantize() if value.is_quantized else value.to_dense()
    flat = value.cpu().contiguous().flatten()
    return _hashed(kind, flat.view(torch.uint8).numpy())


def _hashed(kind: str, data: Any) -> str:
    digest = hashlib.blake2b(kind.encode(), digest_size=16)
    digest.update(data)
    return digest.hexdigest()
