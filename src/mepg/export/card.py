"""Model cards: Markdown with a YAML front matter, as the Hugging Face Hub reads it."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path

import numpy as np

from mepg import algos
from mepg.envs.env import Env
from mepg.envs.video import Video
from mepg.errors import RunFailure, UsageError
from mepg.settings import describe
from mepg.storage.files import write_atomic
from mepg.storage.folder import Folder
from mepg.storage.policy import SavedPolicy, load_policy
from mepg.training.config import Config, options_of
from mepg.training.evaluate import Episode, play
from mepg.training.keys import episode_seed
from mepg.words import many

VIDEO = "replay.mp4"  # the name that the Hub looks for
_LEGAL = (
    "It chooses among the legal actions, so it has to be given them: `predict(..., action_masks=)`; an exported policy "
    "takes them behind the observation, 1 or 0 for each action."
)


def write_card(folder: Folder, path: Path, env_id: str | None = None) -> tuple[list[Path], str | None]:
    """Write the card, and a video of the first evaluation episode next to it.

    Returns the files, and why there is no video if there is none.
    """
    config = folder.config()
    with contextlib.closing(Env(folder.env(env_id))) as env:
        policy = load_policy(folder, env.spaces)
    evaluations = folder.evaluations(config)
    if not evaluations:
        raise UsageError(f"{folder.path} holds no evaluation yet: a card needs one")
    path.parent.mkdir(parents=True, exist_ok=True)
    video, problem = path.with_name(VIDEO), None
    try:
        _record(video, policy)
    except (UsageError, RunFailure) as error:
        problem = str(error)
    text = _text(folder, policy, evaluations, None if problem else video.name)
    write_atomic(path, text.encode())
    return [path] if problem else [path, video], problem


def _record(path: Path, policy: SavedPolicy) -> None:
    with Video(path) as video, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, about an environment without rendering: the error says it too
        with contextlib.closing(Env(policy.config.env, "rgb_array")) as env:
            seed = episode_seed(policy.config.seed, "eval", 0)
            play(policy.act, env, seed, lambda: video.add(env.render, env.fps))


def _text(folder: Folder, policy: SavedPolicy, evaluations: dict[int, list[Episode]], video: str | None) -> str:
    config = policy.config
    step, episodes = list(evaluations.items())[-1]
    returns = [episode.return_ for episode in episodes]
    reward = f"{np.mean(returns):.2f} +/- {np.std(returns):.2f}"
    algorithm = algos.find(config.algorithm)
    options, changed = options_of(Config), {"seed", "steps", *config.non_default_options()}
    defaults, fields = describe(algorithm.spec), describe(config.spec)
    flags = [option.as_flag(getattr(config, name)) for name, option in options.items() if name in changed]
    flags += [f"--set {name}={text}" for name, text in fields.items() if defaults.get(name) != text]
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
        *([f"![The first episode of an evaluation]({video})", ""] if video else []),
        *([_LEGAL, ""] if folder.identity().spaces.sizes.n_legal else []),
        "| | |",
        "| --- | --- |",
        f"| return after {many(step, 'step')} | {reward} over {many(len(returns), 'episode')} without exploration |",
        f"| best evaluation | {max(np.mean([e.return_ for e in each]) for each in evaluations.values()):.2f} |",
        *(f"| {option.help} (`{option.flag}`) | {getattr(config, name)} |" for name, option in options.items()),
        "",
        "```sh",
        " ".join([f"mepg train {config.algorithm} --env {config.env}", *flags]),
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
    """Each value as JSON, which is also YAML: strings are quoted, whatever they contain."""
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {"type": "mean_reward", "value": reward, "name": "mean_reward", "verified": False}
    results = [{"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}]
    entries = {
        "library_name": "mepg",
        "tags": [env, "deep-reinforcement-learning", "reinforcement-learning", algorithm],
        "model-index": [{"name": algorithm, "results": results}],
    }
    return [f"{name}: {json.dumps(value)}" for name, value in entries.items()]
