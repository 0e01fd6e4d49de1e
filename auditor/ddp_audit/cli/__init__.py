"""The command line: which command, and its exit code. Each command is a module of its own, imported when it is asked for."""

from __future__ import annotations

import codecs
import gc
import io
import os
import sys

from ddp_audit.cache import reports

TYPE_CHECKING = False  # as type checkers read it: a report that is printed again needs no typing, and no argparse
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddp_audit.cli.parser import Parser

# Command to its line in the help. A command's module has add_parser(subparsers) and run(args) -> exit code.
COMMANDS = {
    "check": "audit scripts or folders (the default)",
    "trace": "run a launch command with every rank traced; print where ranks diverge, and verdicts on the findings",
    "diff": "compare the traces of a finished or dead run",
    "top": "follow a traced run in the terminal: step rate, who waits for whom, the newest verdict",
    "preflight": "check machines, network, source and data of a job before it starts",
    "batch": "launch and batch arithmetic",
    "explain": "the page of a rule",
    "rules": "the catalogue of rules",
    "config": "the settings that hold for a path, and where each comes from",
    "debug": "what was read, found, followed and given up on in one script",
    "new-rule": "make the files of a new rule",
    "server": "a language server, for editors (extra [lsp])",
    "mcp": "a server of the Model Context Protocol, for agents (extra [mcp])",
    "demo": "show one hazard of the reference trainer, from finding to confirmed diff",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 or 2, or for `trace` the traced command's own."""
    words = list(sys.argv[1:] if argv is None else argv)
    _let_all_text_out()
    try:
        command = _command(words)
        code = reports.again(words) if command == "check" else None
        if code is None:
            code = _dispatch(command, words)
        sys.stdout.flush()
        if argv is None:
            gc.freeze()  # the process ends: Python would look for cycles in all that there is once more
        return code
    except BrokenPipeError:
        # The reader of our output has gone (`ddp-audit .. | head`). Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as the shell reports a writer that SIGPIPE ended
    except (MemoryError, RecursionError) as error:  # outside of the audit of one script, which has bounds of its own
        if os.environ.get("DDP_AUDIT_DEBUG"):
            raise
        why = "there is not enough memory" if isinstance(error, MemoryError) else "something is nested too deeply"
        print(f"ddp-audit: {why} (DDP_AUDIT_DEBUG=1 shows where)", file=sys.stderr)
        return 2
    except Exception as error:
        from ddp_audit.cli.parser import Usage

        if isinstance(error, Usage):
            from ddp_audit.report.summary import one_line

            print(one_line(f"ddp-audit: {error}"), file=sys.stderr)
            return 2
        if os.environ.get("DDP_AUDIT_DEBUG"):
            raise
        from ddp_audit.source.problems import said_of

        print(f"ddp-audit: internal error: {said_of(error)} (DDP_AUDIT_DEBUG=1 shows where)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ddp-audit: interrupted", file=sys.stderr)
        return 130


def _let_all_text_out() -> None:
    """No name in a report can end it: an ASCII output takes UTF-8, as Python's own C locale does, others take escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_ascii = codecs.lookup(sys.stdout.encoding).name == "ascii"
        sys.stdout.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")


def _command(words: Sequence[str]) -> str:
    """The command that words ask for; empty where they ask for the help or the version."""
    if not words or words[0] in ("-h", "--help", "--version"):
        return ""
    first = words[0]
    if first in COMMANDS:
        return first
    if first.isalpha() and not os.access(first, os.F_OK):
        from ddp_audit.cli.parser import Usage, near

        hint = near(first, COMMANDS)
        if hint:
            raise Usage(f"'{first}' is not a command, a file or a folder{hint}")
    return "check"


def _dispatch(command: str, words: Sequence[str]) -> int:
    if not words:
        _top_level().print_help(sys.stderr)
        return 2
    if not command:
        _top_level().parse_args(words[:1])
        return 0
    from importlib import import_module

    from ddp_audit.cli.parser import Parser

    module = import_module(f"ddp_audit.cli.{command.replace('-', '_')}")
    parser = Parser(prog="ddp-audit")
    module.add_parser(parser.add_subparsers(dest="command", parser_class=Parser))
    args = parser.parse_args(words if words[0] == command else [command, *words])
    args.command_line = words
    if args.color != "auto":
        from ddp_audit.report import console

        with console.chosen(args.color):
            return int(module.run(args))
    code: int = module.run(args)
    return code


def _top_level() -> Parser:
    from ddp_audit import __version__
    from ddp_audit.cli.parser import Parser

    lines = "\n".join(f"  {name:<11}{text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="ddp-audit",
        usage="ddp-audit PATH...\n       ddp-audit COMMAND [options]",
        description="Finds hazards of PyTorch DistributedDataParallel training in source, and confirms them in a traced run.",
        epilog=f"commands:\n{lines}\n\n'ddp-audit COMMAND --help' lists the options of a command.\n\n"
        "exit codes: 0 nothing to report, 1 findings or a divergence, 2 the work could not be done",
    )
    parser.add_argument("--version", action="version", version=f"ddp-audit {__version__}")
    return parser
