"""The Python interface: `mepg.ME_SAC("MlpPolicy", env).learn(100_000)`, as in Stable-Baselines3."""
