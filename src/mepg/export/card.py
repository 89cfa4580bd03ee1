"""A model card: what a policy is, in the Markdown with YAML in front that Hugging Face's hub reads."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path

import numpy as np

from mepg import algos
from mepg.envs.env import Env
from mepg.envs.video import Film
from mepg.errors import RunFailure, UsageError
from mepg.settings import describe
from mepg.storage.files import write_whole
from mepg.storage.folder import Folder
from mepg.storage.policy import Policy, load_policy
from mepg.training.config import Config, settings_of
from mepg.training.evaluate import Episode, play
from mepg.training.keys import episode_seed
from mepg.words import many

FILM = "replay.mp4"  # the name that the hub looks for


def write_card(folder: Folder, path: Path, env_id: str | None = None) -> tuple[list[Path], str | None]:
    """The card, and a film of the first evaluation episode beside it; or why there is no film."""
    config = folder.config()
    with contextlib.closing(Env(folder.env(env_id))) as env:
        policy = load_policy(folder, env.spaces)
    evaluations = folder.evaluations(config)
    if not evaluations:
        raise UsageError(f"{folder.path} holds no evaluation yet: a card needs one")
    path.parent.mkdir(parents=True, exist_ok=True)
    film, missing = path.with_name(FILM), None
    try:
        _shoot(film, policy)
    except (UsageError, RunFailure) as error:
        missing = str(error)
    text = _text(folder, policy, evaluations, None if missing else film.name)
    write_whole(path, text.encode())
    return [path] if missing else [path, film], missing


def _shoot(path: Path, policy: Policy) -> None:
    with Film(path) as film, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, about an environment that cannot be drawn, which is said below
        with contextlib.closing(Env(policy.config.env, "rgb_array")) as env:
            seed = episode_seed(policy.config.seed, "eval", 0)
            play(policy.act, env, seed, lambda: film.add(env.picture, env.fps))


def _text(folder: Folder, policy: Policy, evaluations: dict[int, list[Episode]], film: str | None) -> str:
    config = policy.config
    step, episodes = list(evaluations.items())[-1]
    returns = [episode.total for episode in episodes]
    reward = f"{np.mean(returns):.2f} +/- {np.std(returns):.2f}"
    algorithm = algos.find(config.algorithm)
    settings = settings_of(Config)
    values = {name: (getattr(config, name), about.default) for name, about in settings.items()}
    said = {name: value for name, (value, usual) in values.items() if value != usual or name in ("seed", "steps")}
    command = f"mepg train {config.algorithm} --env {config.env}"
    command += "".join(f" {settings[name].as_flag(value)}" for name, value in said.items())
    standard = describe(algorithm.spec)
    fields = describe(config.spec)
    command += "".join(f" --set {name}={text}" for name, text in fields.items() if standard.get(name) != text)
    unfinished = "" if policy.step == config.steps else f", unfinished: of {config.steps:,}"
    lines = [
        "---",
        *_front_matter(config.algorithm, config.env, reward),
        "---",
        "",
        f"# {config.algorithm} on {config.env}",
        "",
        f"Trained with mepg for {many(policy.step, 'step')}{unfinished}. The algorithm: {algorithm.summary}.",
        "",
        *([f"![The first episode of an evaluation]({film})", ""] if film else []),
        "| | |",
        "| --- | --- |",
        f"| return after {many(step, 'step')} | {reward} over {many(len(returns), 'episode')} without exploration |",
        f"| best evaluation | {max(np.mean([e.total for e in each]) for each in evaluations.values()):.2f} |",
        *(f"| {about.words} (`{about.flag}`) | {getattr(config, name)} |" for name, about in settings.items()),
        "",
        "```sh",
        command,
        "```",
        "",
        "## Spec",
        "",
        "| field | value |",
        "| --- | --- |",
        *(f"| `{name}` | {text} |" for name, text in fields.items()),
        "",
        "## Versions",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {text} |" for name, text in folder.versions().items()),
    ]
    return "\n".join(lines) + "\n"


def _front_matter(algorithm: str, env: str, reward: str) -> list[str]:
    """JSON is YAML too, and what it calls a string is one, whatever is in it."""
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {"type": "mean_reward", "value": reward, "name": "mean_reward", "verified": False}
    results = [{"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}]
    about = {
        "library_name": "mepg",
        "tags": [env, "deep-reinforcement-learning", "reinforcement-learning", algorithm],
        "model-index": [{"name": algorithm, "results": results}],
    }
    return [f"{name}: {json.dumps(value)}" for name, value in about.items()]
