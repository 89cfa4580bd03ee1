"""A tiny run from the command line."""

from mepg.cli import main

TINY = ["--set", "hidden=8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1"]


def train(*argv):
    return main(["train", *argv])
