"""Without a GPU the Triton kernels run in its interpreter, which is chosen when it is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
