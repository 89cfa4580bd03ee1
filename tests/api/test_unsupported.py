"""What Stable-Baselines3 has and mepg has not: the error says what to use instead."""

import pytest

from mepg.api import unsupported


@pytest.mark.parametrize("name", [*unsupported.ATTRIBUTES, *unsupported.ARGUMENTS])
def test_what_is_left_out_says_what_to_use(trained, name):
    assert not hasattr(trained, name)
    with pytest.raises(AttributeError, match=f"ME_SAC has no '{name}': ") as error:
        getattr(trained, name)
    assert "\n" not in str(error.value)
