"""The paper's eight tasks, with their sizes, so that parameters can be counted without a simulator."""

from __future__ import annotations

from mepg.core.types import Sizes

PAPER_TASKS = {
    "AntBulletEnv-v0": Sizes(obs=28, action=8),
    "HalfCheetahBulletEnv-v0": Sizes(obs=26, action=6),
    "HopperBulletEnv-v0": Sizes(obs=15, action=3),
    "Walker2DBulletEnv-v0": Sizes(obs=22, action=6),
    "InvertedPendulumBulletEnv-v0": Sizes(obs=5, action=1),
    "InvertedDoublePendulumBulletEnv-v0": Sizes(obs=9, action=1),
    "InvertedPendulumSwingupBulletEnv-v0": Sizes(obs=5, action=1),
    "ReacherBulletEnv-v0": Sizes(obs=9, action=2),
}
