"""The program `mepg`: parses the command line, runs a command and prints its answer."""

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
    exit_now,
    exit_status,
    foreign_code,
    printable,
    unfailing_output,
)
from mepg.signals import exit_on_signal, exits_on_signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    with cli_environment(), unfailing_output() as output, contextlib.ExitStack() as stack:
        if argv is None:  # our own process. A KeyboardInterrupt could get lost in code that catches everything
            stack.enter_context(exit_on_signal())
        try:
            status = exit_status(lambda: _run(argv, output, stack))
        except SystemExit:  # argparse's
            if output.write_error() is None:
                raise
            status = 0
        if error := output.write_error():
            print(f"mepg: standard output cannot be written: {error.strerror}", file=sys.stderr)
            status = status or EXIT_FAILURE
        if argv is None and exits_on_signal():
            exit_now(status)
        return status


def _run(argv: Sequence[str] | None, output: Output, stack: contextlib.ExitStack) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    command = arguments.command
    if getattr(command, "SAVES", False):  # until there is something to save, a signal ends the process
        stack.enter_context(exit_on_signal())
    if arguments.config is not None:
        defaults = read_settings(arguments.config, arguments.parser, arguments.env, arguments.algorithm)
        arguments.parser.set_defaults(**defaults)
        arguments = parser.parse_args(argv)  # again: the command line overrides the file
    arguments.say = (lambda _: None) if arguments.json else (lambda line: print(printable(line), flush=True))
    with output.stdout_for_answer() if arguments.json else contextlib.nullcontext():
        if getattr(command, "COMPUTES", False):
            _configure_threads(arguments.threads)
        _import_algorithms(arguments)
        answer: Answer = command.answer(arguments)
        if arguments.json or answer.text:
            print(json.dumps(answer.data) if arguments.json else printable(answer.text), file=output.answer)
    return answer.status


def _configure_threads(threads: int) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))  # NumPy reads it when it is imported
    from mepg.storage.compilation_cache import configure_jax

    configure_jax(threads)


def _import_algorithms(arguments: argparse.Namespace) -> None:
    """Import the modules of algorithms that the user has named as module:name."""
    names = [name for name in (arguments.algorithm, *arguments.algorithms) if ":" in (name or "")]
    if names:
        from mepg.algos import import_named

        for name in names:
            with foreign_code:
                import_named(name)


class _Parser(argparse.ArgumentParser):
    """argparse, with one-line errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"mepg: {message} (see {self.prog} --help)\n")

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
            name, help=command.__doc__, description=command.__doc__, epilog="Defaults are in parentheses."
        )
        sub.set_defaults(command=command, parser=sub, config=None, threads=1, algorithm=None, algorithms=())
        sub.add_argument("--json", action="store_true", help="print the answer as JSON")
        command.add_arguments(sub)
    return parser
