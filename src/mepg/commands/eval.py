"""evaluate a run's policy, without exploration"""

import contextlib
from pathlib import Path

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.system import has_screen

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder")
    flags.add_episodes(parser)
    flags.add_best(parser)
    flags.add_path(parser, "--video", "FILE", "record the first episode: .mp4 or .gif")
    parser.add_argument("--render", action="store_true", help="show the episodes in a window")


def answer(arguments: Arguments) -> Answer:
    import numpy as np

    from mepg.envs.env import Env
    from mepg.envs.video import Video
    from mepg.storage.folder import Folder
    from mepg.storage.policy import load_policy
    from mepg.training.evaluate import play
    from mepg.training.keys import episode_seed

    flags.check_episodes(arguments)
    if arguments.render and arguments.video:
        raise UsageError("--render opens a window and --video records without one: choose one of them")
    if arguments.render and not has_screen():
        raise UsageError("there is no screen to open a window on ($DISPLAY is not set): use --video out.mp4 instead")
    folder = Folder(arguments.run)
    video = contextlib.nullcontext() if arguments.video is None else Video(arguments.video)
    env = Env(folder.env(arguments.env), "human" if arguments.render else "rgb_array" if arguments.video else None)
    policy = load_policy(folder, env.spaces, best=arguments.best)
    arguments.say(policy.title)
    episodes = []
    for i in range(arguments.episodes):
        with video if i == 0 else contextlib.nullcontext() as recording:
            watch = None if recording is None else lambda to=recording: to.add(env.render, env.fps)
            episodes.append(play(policy.act, env, episode_seed(arguments.seed, "eval", i), watch))
        recorded = f"   -> {arguments.video}" if recording is not None else ""
        total, length = episodes[-1]
        arguments.say(f"  episode {i + 1:>3}: return {total:10,.2f}   length {length:,}{recorded}")
    env.close()
    totals = [episode.return_ for episode in episodes]
    mean, std = float(np.mean(totals)), float(np.std(totals))
    data = {
        "run": str(arguments.run),
        "step": policy.step,
        "mean_reward": mean,
        "std_reward": std,
        "returns": totals,
        "lengths": [episode.length for episode in episodes],
        "video": arguments.video and str(arguments.video),
    }
    return Answer(data, f"mean return {mean:,.2f} +- {std:,.2f}")
