"""Without a GPU the Triton kernels run in its interpreter, which is chosen when it is imported."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tables that tests prepare do not go to the user's cache."""
    os.environ["SLICEGRAPH_CACHE"] = str(tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests run first, or one process would end with them and the others wait."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
