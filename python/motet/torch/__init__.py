# SPDX-License-Identifier: Apache-2.0
"""PyTorch: importing this registers the c10d backend ``motet``.

    import torch.distributed as dist
    import motet.torch

    dist.init_process_group("motet")

It takes tensors on ``cpu`` and on ``cuda``. Beside another backend: ``"cpu:motet,cuda:nccl"``.
The backend is compiled for the PyTorch that is there, once: ``python -m motet.torch build``.
"""

from __future__ import annotations

from typing import Any

try:
    import torch
    import torch.distributed as dist
except ImportError as reason:
    raise ImportError(
        f"motet.torch needs PyTorch, and there is none here ({reason}): install it, then "
        "python -m motet.torch build"
    ) from None

NAME = "motet"
DEVICES = ["cpu", "cuda"]


def _load() -> Any:
    try:
        from . import _backend
    except ImportError as reason:
        raise ImportError(
            f"motet's backend for PyTorch {torch.__version__} cannot be loaded: {reason}; "
            "python -m motet.torch build makes it, with a C++ compiler"
        ) from None
    built = _backend.torch_version.split(".")[:2]
    if built != torch.__version__.split(".")[:2]:
        raise ImportError(
            f"motet's backend was built for PyTorch {_backend.torch_version}, this is "
            f"{torch.__version__}: python -m motet.torch build makes it anew"
        )
    return _backend


def _create(options: Any, backend_options: Any = None) -> Any:
    return _load().create(
        options.store, options.group_rank, options.group_size, options.timeout.total_seconds()
    )


def register() -> None:
    """Make the name known to ``torch.distributed``; importing this module does."""
    if NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=DEVICES)


def make_nccl_backend(*arguments: Any, **named: Any) -> Any:
    """The vendor's own ProcessGroupNCCL: see ``motet.torch.bridge``, which is loaded by this."""
    from .bridge import make_nccl_backend as make

    return make(*arguments, **named)


register()
