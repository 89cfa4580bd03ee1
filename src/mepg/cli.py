"""The program `mepg`: its command line, and the one place where an answer is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from mepg import __version__
from mepg.commands import Answer, commands
from mepg.errors import unknown
from mepg.flags import read_settings
from mepg.process import (
    EXIT_FAILURE,
    EXIT_USAGE,
    Output,
    cli_environment,
    exit_status,
    foreign_code,
    lasting_output,
    leave,
    plain,
)
from mepg.signals import ending_at_once, ends_at_once


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    with cli_environment(), lasting_output() as output, contextlib.ExitStack() as to_the_end:
        if argv is None:  # our own process. A KeyboardInterrupt could get lost in code that catches everything
            to_the_end.enter_context(ending_at_once())
        try:
            status = exit_status(lambda: _run(argv, output, to_the_end))
        except SystemExit:  # argparse's
            if output.trouble() is None:
                raise
            status = 0
        if trouble := output.trouble():
            print(f"mepg: standard output cannot be written: {trouble.strerror}", file=sys.stderr)
        status = status or (EXIT_FAILURE if trouble else 0)
        if argv is None and ends_at_once():
            leave(status)
        return status


def _run(argv: Sequence[str] | None, output: Output, to_the_end: contextlib.ExitStack) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    command = arguments.command
    if getattr(command, "SAVES", False):  # while there is nothing to save, a signal ends the process
        to_the_end.enter_context(ending_at_once())
    if getattr(arguments, "config", None):
        said = arguments.env, arguments.algorithm
        arguments.parser.set_defaults(**read_settings(arguments.config, arguments.parser, *said))
        arguments = parser.parse_args(argv)  # once more: what the command line says wins
    arguments.say = (lambda _: None) if arguments.json else (lambda line: print(plain(line), flush=True))
    with output.only_answer() if arguments.json else contextlib.nullcontext():
        if getattr(command, "COMPUTES", False):
            _start(getattr(arguments, "threads", 1))
        _import_algorithms(arguments)
        answer: Answer = command.answer(arguments)
        if arguments.json or answer.text:
            print(json.dumps(answer.data) if arguments.json else plain(answer.text), file=output.answer)
    return answer.status


def _start(threads: int) -> None:
    """What a command that computes does first."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))  # which NumPy reads when it is imported
    from mepg.storage.compilation_cache import configure_jax

    configure_jax(threads)


def _import_algorithms(arguments: argparse.Namespace) -> None:
    """Import the modules of algorithms that the user has named as module:name."""
    named = [getattr(arguments, "algorithm", None), *getattr(arguments, "algorithms", ())]
    if any(":" in name for name in named if name):
        from mepg.algos import import_named

        for name in named:
            with foreign_code:
                import_named(name or "")


class _Parser(argparse.ArgumentParser):
    """argparse, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"mepg: {message} ({self.prog} --help shows how)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.metavar == "COMMAND" and value not in (action.choices or ()):
            self.error(str(unknown("command", value, action.choices or ())))
        super()._check_value(action, value)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, with a subparser for each command."""
    parser = _Parser(
        prog="mepg", description="Minimalist ensemble policy gradients: an ensemble for the price of one network."
    )
    parser.add_argument("--version", action="version", version=f"mepg {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in commands().items():
        sub = subparsers.add_parser(
            name, help=command.__doc__, description=command.__doc__, epilog="Defaults are in brackets."
        )
        sub.set_defaults(command=command, parser=sub)
        sub.add_argument("--json", action="store_true", help="print JSON, for programs")
        command.add_arguments(sub)
    return parser
