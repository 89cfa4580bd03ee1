"""It learns: Pendulum-v1, from about -1,400 to better than -200, within 10,000 steps."""

import numpy as np
import pytest

from mepg.run.config import Config
from mepg.run.session import Session
from tests.conftest import MAIN


@pytest.mark.parametrize("algorithm", MAIN)
def test_pendulum(algorithm, tmp_path):
    config = Config.make(algorithm, ["warmup=1000"], env="Pendulum-v1", steps=10_000, eval_every=2_500)
    with Session(config, tmp_path / "run") as session:
        returns = []
        for record in session:
            if record.evaluation is not None:
                returns.append(np.mean([episode.total for episode in record.evaluation]))
                if returns[-1] >= -200:
                    break
    assert returns[-1] >= -200, returns
    assert returns[0] < -500, "already good before it had learned anything?"
