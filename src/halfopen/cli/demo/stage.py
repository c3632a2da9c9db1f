"""The stage: start the processes, play all variants at once, show them, take stock, clean up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import halfopen
from halfopen.cli.demo.account import Account
from halfopen.cli.demo.child import PartnerProcess
from halfopen.cli.demo.console import ConsoleWish
from halfopen.cli.demo.errors import Broken
from halfopen.cli.demo.gateway import GatewayProcess, carried_over
from halfopen.cli.demo.gateway_play import GatewayPlay
from halfopen.cli.demo.guards import Variant, breaker_of
from halfopen.cli.demo.messages import Message, messages
from halfopen.cli.demo.narrator import Narrator
from halfopen.cli.demo.play import Comparison, Play, letters_of
from halfopen.cli.demo.scene import Camera, Circuit
from halfopen.cli.demo.screen import Screen
from halfopen.cli.demo.story import Pace, Story
from halfopen.cli.demo.wire import Endpoint

__all__ = ["Ending", "Options", "perform"]

_FRAME = 0.1
_LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    What the caller of the demo chose.

    Attributes:
        speed: Seconds of the story in one of the watch.
        partner: URL of a real partner; None plays the story with ours.
        directory: Where the messages are; None invents them.
        count: How many invented messages a real partner gets.
        compare: Play the comparisons as well.
        sabotage: ``lose`` or ``repeat`` a message, to see a promise break.
        hub: ``gateway``, or ``memory``: the hub of the comparisons, which keeps its messages in memory.
        db: The gateway's queue; None: in a temporary folder.
        kill_at: When to kill the gateway, in seconds of the watch.
        console: Serve the gateway's console.
        stay: Leave the partner, the gateway and its console running until the caller's cleanup.
    """

    speed: float
    seed: int = 7
    port: int = 0
    partner: str | None = None
    directory: Path | None = None
    count: int = 100
    compare: bool = True
    sabotage: str | None = None
    hub: str = "memory"
    db: Path | None = None
    kill_at: tuple[float, ...] = ()
    console: bool = False
    stay: bool = False

    @property
    def story(self) -> Story:
        """Return the script; a real partner has none, and nobody hurries it."""
        if self.partner is None:
            return Story()
        return Story(accept_until=_LONGEST, ends_at=_LONGEST)


@dataclass(frozen=True, slots=True)
class Ending:
    """
    How it ended.

    Attributes:
        accounts: halfopen's is the last.
        interrupted: Whether somebody broke it off.
        console: URL of the console; empty: there was none.
        orders: The link to it that lets its reader give orders.
    """

    accounts: tuple[Account, ...]
    interrupted: bool
    console: str = ""
    orders: str = ""

    @property
    def ours(self) -> Account:
        """Return halfopen's account."""
        return self.accounts[-1]

    @property
    def others(self) -> tuple[Account, ...]:
        """Return the comparisons."""
        return self.accounts[:-1]


def perform(options: Options, screen: Screen, cleanup: ExitStack) -> Ending:
    """
    Play the story, or send to a real partner; Ctrl-C ends it at once.

    Args:
        options: What to play.
        screen: Where to show it.
        cleanup: Ends every process of the demo when it is closed.

    Raises:
        BadInput: It cannot begin.
        Broken: A process of the demo has gone.
    """
    show = _Show(options, cleanup)
    interrupted = False
    try:
        show.run(screen)
    except KeyboardInterrupt:
        interrupted = True
    return show.end(interrupted)


class _Show:
    def __init__(self, options: Options, cleanup: ExitStack) -> None:
        self._story, self._pace = options.story, Pace(options.speed)
        self._narrator = Narrator(self._story, self._pace)
        self._gateway: GatewayProcess | None = None
        arriving = _arriving(options)
        partner, endpoint = _partner(options, cleanup)
        circuit = self._play_of(options, arriving, partner, endpoint, cleanup)
        title = str(endpoint) if partner is None else "a partner's bad day"
        console = "" if self._gateway is None else self._gateway.console
        self._camera = Camera(title, circuit, self._story, self._pace, console=console)
        self._comparisons = _comparisons(options, cleanup)
        cleanup.callback(self._play.hub.stop)

    def _play_of(
        self, options: Options, arriving: Iterator[Message], partner: PartnerProcess | None, endpoint: Endpoint,
        cleanup: ExitStack,
    ) -> Callable[[], Circuit]:  # fmt: skip
        self._play: Play | GatewayPlay
        if options.hub == "gateway" and partner is not None:
            play = self._gateway_play(options, arriving, partner, cleanup)
            self._play = play
            return play.circuit
        if options.console:
            self._narrator.say(0.0, "no console: it is the gateway's, and --hub memory has none")
        breaker = breaker_of(self._story, self._pace, options.seed)
        self._play = memory = Play(
            Variant.HALFOPEN, breaker, endpoint, arriving, self._story, self._pace,
            partner=partner, repeat=options.sabotage == "repeat",
        )  # fmt: skip
        breaker.subscribe(lambda move: memory.moves.append((move.at, str(move.new))), halfopen.CircuitTransitioned)
        breaker.subscribe(self._moved, halfopen.CircuitTransitioned)
        return lambda: Circuit.of(breaker.snapshot().plain())

    def _gateway_play(
        self, options: Options, arriving: Iterator[Message], partner: PartnerProcess, cleanup: ExitStack
    ) -> GatewayPlay:
        folder = Path(cleanup.enter_context(TemporaryDirectory(prefix="halfopen-demo-", ignore_cleanup_errors=True)))
        db = options.db or folder / "hub.db"
        left, port = carried_over(db)
        settings = {"story": self._story, "pace": self._pace, "partner": partner.endpoint, "db": db}
        wish = ConsoleWish.new(options.speed) if options.console else None
        self._gateway = gateway = GatewayProcess(folder, settings, port=port, console=wish)
        cleanup.callback(gateway.kill)
        if gateway.console:
            self._narrator.say(0.0, f"watch it on the console: {gateway.console}")
        elif gateway.no_console:
            self._narrator.say(0.0, f"no console: {gateway.no_console}")
        return GatewayPlay(
            gateway, partner, arriving, self._story, self._pace, moved=self._moved, said=self._narrator.say,
            kill_at=options.kill_at, left=left, repeat=options.sabotage == "repeat",
            stays=options.stay,
        )  # fmt: skip

    def run(self, screen: Screen) -> None:
        for comparison in self._comparisons:
            comparison.wait_until_ready()
        for comparison in self._comparisons:
            comparison.start()
        self._play.start()
        with screen:
            while not (self._play.over and all(comparison.over for comparison in self._comparisons)):
                self._frame(screen)
                time.sleep(_FRAME)
            self._frame(screen)

    def end(self, interrupted: bool) -> Ending:
        ours = self._play.give_up() if interrupted and isinstance(self._play, GatewayPlay) else self._play.finish()
        others = [account for comparison in self._comparisons if (account := comparison.look()) is not None]
        if not interrupted and sum(account.final for account in others) < len(self._comparisons):
            raise Broken("a story without halfopen ended in the middle; run the demo again, or --no-compare")
        gateway = self._gateway
        console, orders = ("", "") if gateway is None else (gateway.console, gateway.orders)
        return Ending((*others, ours), interrupted, console, orders)

    def _frame(self, screen: Screen) -> None:
        if self._play.over:
            self._play.finish()
        account = self._play.look(fresh=self._narrator.behind)
        self._narrator.look(account)
        others = tuple((each.variant.shown, each.look()) for each in self._comparisons)
        screen.show(self._camera.take(account, others, self._narrator.lines))

    def _moved(self, event: halfopen.CircuitTransitioned) -> None:
        self._narrator.moved(event)
        self._camera.moved(event)


def _arriving(options: Options) -> Iterator[Message]:
    if options.partner is None:
        return messages(letters_of(options.directory, options.seed, again=True))
    letters = letters_of(options.directory, options.seed, again=False)
    return messages(islice(letters, options.count) if options.directory is None else letters)


def _partner(options: Options, cleanup: ExitStack) -> tuple[PartnerProcess | None, Endpoint]:
    if options.partner is not None:
        endpoint = Endpoint.of(options.partner)
        endpoint.check()
        return None, endpoint
    partner = PartnerProcess(
        options.speed, port=options.port, lose=options.sabotage == "lose", odd=options.hub == "gateway"
    )
    cleanup.callback(partner.stop)
    return partner, partner.endpoint


def _comparisons(options: Options, cleanup: ExitStack) -> Sequence[Comparison]:
    if options.partner is not None or not options.compare:
        return ()
    comparisons: list[Comparison] = []
    for variant in (Variant.NONE, Variant.NAIVE):
        comparisons.append(Comparison(variant, options.speed, options.seed, options.directory))
        cleanup.callback(comparisons[-1].stop)
    return comparisons
