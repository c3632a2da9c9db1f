"""
The command `halfopen`: one group, its subcommands loaded when they are called.

Exit codes, the same for every subcommand:

| code | meaning |
|--:|---|
| 0 | done, and every promise kept |
| 1 | done, but a promise was broken or a check failed |
| 2 | bad input: nothing was started; one line says what to do |
| 130 | interrupted (Ctrl-C) |
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "check": ("halfopen.cli.check:check", "Find every mistake in a configuration file, and say what it comes to."),
    "console": ("halfopen.cli.console:console", "Serve the live console: see every circuit, and steer it."),
    "convert": ("halfopen.cli.convert:convert", "Write the YAML of resilience4j as halfopen.toml."),
    "describe": ("halfopen.cli.describe:describe", "Show the policies and pipelines of a configuration file."),
    "diff": ("halfopen.cli.diff:diff", "Show what another version of a configuration file would change."),
    "demo": ("halfopen.cli.demo:demo", "Play a partner's bad day over real HTTP, and prove that nothing is lost."),
    "gateway": ("halfopen.cli.gateway:gateway", "Send what programs post on to partners, each behind its breaker."),
    "order": ("halfopen.cli.order:order", "Tell a circuit what to do, through a console."),
    "queue": ("halfopen.cli.queue:queue", "Look into a retry queue, and give its messages orders."),
    "status": ("halfopen.cli.status:status", "Show the circuits of a console that are not closed."),
    "watch": ("halfopen.cli.watch:watch", "Watch the circuits of a console in the terminal, live."),
}
"""Subcommand → where it lives (``module:attribute``) and its line in ``--help``."""

_EPILOG = (
    "Exit codes: 0 done and every promise kept; 1 a promise was broken or a check failed; "
    "2 bad input, nothing was started; 130 interrupted."
)


def _without_click() -> None:
    print("halfopen: the command line needs click; run: pip install 'halfopen[cli]'", file=sys.stderr)
    raise SystemExit(2)


def _group() -> click.Group:
    import click

    from halfopen._core.checking import nearest
    from halfopen.cli.files import BadInput

    @contextmanager
    def _one_line() -> Generator[None]:
        try:
            yield
        except click.UsageError as error:
            # Without arguments the help is shown, which is no mistake.
            if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
                raise
            raise BadInput(error.format_message()) from None

    class LazyGroup(click.Group):
        """A group that imports a subcommand when it is called, not to list it."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in COMMANDS:
                return None
            module, attribute = COMMANDS[cmd_name][0].split(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command

        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            with _one_line():
                return super().parse_args(ctx, args)

        def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
            with _one_line():
                if args[0] not in COMMANDS and not args[0].startswith("-"):
                    near = nearest(args[0], COMMANDS)
                    hint = f"; did you mean {near}?" if near else "; `halfopen --help` lists them"
                    raise click.UsageError(f"there is no command {args[0]!r}{hint}")
                return super().resolve_command(ctx, args)

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo(f"halfopen {_version()}")
            ctx.exit()

    group = LazyGroup(
        "halfopen",
        help="Circuit breakers and resilience policies for Python: what to run, watch and try.",
        epilog=_EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.params.append(
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show_version,
            help="Show the version and exit.",
        )
    )  # fmt: skip
    return group


def _version() -> str:
    try:
        return version("halfopen")
    except PackageNotFoundError:
        return "(not installed: running from a source tree)"


def _main() -> Any:
    try:
        return _group()
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        return _without_click


main: click.Group = _main()
