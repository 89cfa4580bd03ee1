"""The training loop of another library, for its own Python: run by path, and imports nothing of this package.

`python peer.py TASK`, as `mepg.bench.worker` is called.
"""

import json
import resource
import sys
import time

import gymnasium
import pybullet_envs_gymnasium  # noqa: F401
import torch

WARMUP = 300


def main() -> None:
    """Learn until the other side hangs up."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback

    class Told(BaseCallback):
        """Wait for the next command between two stretches of steps."""

        began = 0.0

        def _on_step(self) -> bool:
            done = self.num_timesteps - WARMUP - 10
            if done < 0 or done % task["steps"]:
                return True
            answer = {"ready": True}
            if done > 0:
                seconds = (time.perf_counter() - self.began) / task["steps"]
                answer = {
                    "seconds": seconds,
                    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                }
            print(json.dumps(answer), flush=True)
            if not sys.stdin.readline():
                return False
            self.began = time.perf_counter()
            return True

    name, arguments = task["algorithm"], {}
    if task["library"] == "sbx":
        import sbx

        library = sbx
    else:
        library = stable_baselines3
    if name == "td3":
        arguments["policy_delay"] = 2
    model = getattr(library, name.upper())(
        "MlpPolicy",
        gymnasium.make(task["env"]),
        learning_rate=3e-4,
        buffer_size=1_000_000,
        learning_starts=WARMUP,
        batch_size=256,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [256, 256]},
        device="cpu",
        seed=0,
        **arguments,
    )
    model.learn(10**8, callback=Told())


main()
