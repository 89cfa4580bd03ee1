"""What the race shows."""

from mepg.bench.race import LIMIT, Evaluation, Heat
from mepg.bench.race_show import draw, to_markdown


def solved(minutes):
    return [Evaluation(i, 60 * minutes, 9_000.0) for i in (1, 2, 3)]


def results():
    lost = [Evaluation(1, LIMIT, -900.0)]
    return {
        **{Heat("me-sac", "Hopper-v5", seed): solved(10 + seed) for seed in range(3)},
        Heat("sbx-sac", "Hopper-v5", 0): solved(30),
        Heat("sbx-sac", "Hopper-v5", 1): lost,
        Heat("sb3-td3", "Hopper-v5", 0): lost,
        Heat("me-sac", "Pendulum-v1", 0): solved(0.5),
    }


def test_a_table():
    _, _, head, _, *rows = to_markdown(results()).splitlines()
    assert head == "| core-minutes | Pendulum-v1 (-200) | Hopper-v5 (2,000) |"
    assert rows == [
        "| me-sac | 0.5 (1 seed) | 11.0 (10.0 to 12.0) |",
        "| sb3-td3 |  | did not get there in 60 (1 seed) |",
        "| sbx-sac |  | 30.0, 1 of 2 seeds |",
    ]


def test_a_picture():
    pictures = draw(results())
    assert pictures["png"].startswith(b"\x89PNG")
    assert b"<svg" in pictures["svg"]
