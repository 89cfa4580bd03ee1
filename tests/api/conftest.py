"""A model for tests that only ask it."""

import pytest

from tests.api.models import make


@pytest.fixture(scope="session")
def trained():
    return make().learn(60)
