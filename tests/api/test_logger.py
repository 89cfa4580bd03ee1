"""What a model logs."""

from mepg.api.logger import Logger
from tests.api.models import make
from tests.run.processes import tensorboard


def test_the_log_is_a_table_and_says_how_often_it_learns(capsys, tmp_path):
    model = make(verbose=1, n_envs=2, env="StubScaled-v0", tensorboard_log=tmp_path)
    model.learn(300, log_interval=2)
    text = capsys.readouterr().out
    assert "2 environments at a time, 1 gradient step for each step in an environment" in text
    for name in ("rollout/", "ep_rew_mean", "time/", "total_timesteps", "train/", "critic_loss"):
        assert name in text
    assert list((tmp_path / "ME_SAC_1").glob("events.out.*"))
    make(tensorboard_log=tmp_path, learning_starts=2).learn(5)
    assert (tmp_path / "ME_SAC_2").is_dir()


def test_another_logger_gets_the_same(tmp_path):
    rows = []

    class Mine:
        def record(self, name, value, exclude=None):
            rows.append(name)

        def dump(self, step):
            rows.append(step)

    model = make()
    model.set_logger(Mine())
    model.learn(250, log_interval=4)
    assert rows[-1] == 200
    assert "train/critic_loss" in rows


def test_values_are_collected_until_they_are_written_down(tmp_path, capsys):
    logger = Logger(tmp_path / "log", verbose=1)
    for value in (1.0, 2.0, None, 6.0):
        logger.record_mean("train/loss", value)
    logger.record("time/fps", 7)
    logger.record("train/note", "for people")
    assert logger.name_to_value["train/loss"] == 3.0
    logger.dump(10)
    assert "loss" in (shown := capsys.readouterr().out)
    assert "for people" in shown
    logger.record_mean("train/loss", 5.0)
    assert logger.name_to_value == {"train/loss": 5.0}, "begun anew"
    logger.dump(20)
    logger.close()
    assert tensorboard(tmp_path / "log") == {"train/loss": [10, 20], "time/fps": [10]}
    assert logger.get_dir() == str(tmp_path / "log")
