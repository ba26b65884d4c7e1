"""Every operator test that asks for `backend` runs on all of them."""

from collections.abc import Iterator

import pytest
from support.variants import VARIANTS, running


@pytest.fixture(params=VARIANTS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param):
        yield request.param
