import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_string, policy

import pytest

from activities.notifiers import http_post, mail
from activities.notifiers.destination import Destination, NotDelivered
from activities.notifiers.mail import MailBox, parse_mail_server
from activities.notifiers.signature import is_genuine, sign
from activities.notifiers.slack import SlackChannel
from activities.notifiers.webhook import Webhook
from activities.notifiers.wording import text_of
from tests.activities.receivers import MailReceiver, mail_receiver, web_receiver
from workflows.domain.errors import RefusedToStart

SECRET = "whsec_synthetic_0123456789"
RUN = "billing-run/acct_sim/2031-03"
CLOSED = {
    "id": f"{RUN}/run_closed/closed",
    "kind": "run_closed",
    "run": RUN,
    "lines": 12,
    "counts": {"succeeded": 10, "needs_customer": 2},
    "totals": {"usd": {"lines": 12, "amount_minor": 120_000, "cap_minor": 132_000}},
    "canceled_by_request": False,
    "moved_minor": {"usd": 100_000},
    "seconds": 63.2,
    "within_limit": False,
    "double_charge_check": "clean",
    "double_charges": 0,
}


def signature_of(header: str, body: bytes) -> bool:
    """Check a signature as somebody would who has read nothing but the documentation."""
    parts = dict(part.split("=", 1) for part in header.split(","))
    expected = hmac.new(SECRET.encode(), parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts["v1"])


async def test_a_webhook_is_signed() -> None:
    """The body is the payload, and its signature is what the documentation says."""
    async with web_receiver() as receiver:
        assert await Webhook(f"{receiver.url}/hook?token=abc", SECRET).deliver(CLOSED) == "HTTP 200"
    [delivery] = receiver.deliveries
    header = delivery.headers["Chargeonce-Signature"]
    assert delivery.path == "/hook?token=abc"
    assert json.loads(delivery.body) == CLOSED
    assert signature_of(header, delivery.body)
    assert is_genuine(header, delivery.body, SECRET, now_epoch_seconds=time.time())


@pytest.mark.parametrize(
    ("header", "body", "now", "genuine"),
    [
        (sign(SECRET, b"{}", at_epoch_seconds=1_000), b"{}", 1_299.0, True),
        (sign(SECRET, b"{}", at_epoch_seconds=1_000), b"{}", 1_301.0, False),
        (sign(SECRET, b"{}", at_epoch_seconds=1_000), b"{}", 699.0, False),
        (sign(SECRET, b"{}", at_epoch_seconds=1_000), b"{ }", 1_000.0, False),
        (sign("another_secret_of_16", b"{}", at_epoch_seconds=1_000), b"{}", 1_000.0, False),
        (sign(SECRET, b"{}", at_epoch_seconds=1_000).replace("t=1000", "t=1001"), b"{}", 1_000.0, False),
        ("v1=00," + sign(SECRET, b"{}", at_epoch_seconds=1_000), b"{}", 1_000.0, True),
        ("", b"{}", 1_000.0, False),
        ("t=,v1=", b"{}", 1_000.0, False),
        ("t=-1,v1=ab", b"{}", 1_000.0, False),
        ("t=1000,v1=\ud800", b"{}", 1_000.0, False),
        (f"t={'9' * 400},v1=ab", b"{}", 1_000.0, False),
    ],
)
def test_a_signature_is_genuine_or_not(header: str, body: bytes, now: float, genuine: bool) -> None:  # noqa: FBT001
    """Another body, secret or time is noticed, and nonsense is no signature."""
    assert is_genuine(header, body, SECRET, now_epoch_seconds=now) is genuine


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 410, 429, 500, 503])
async def test_anything_but_a_2xx_is_not_delivered(status: int) -> None:
    """Every other answer is a failure, and a redirect is not followed."""
    async with web_receiver(status) as receiver:
        receiver.headers = {"Location": f"{receiver.url}/elsewhere"}
        with pytest.raises(NotDelivered, match=f"HTTP {status}") as failed:
            await Webhook(receiver.url, SECRET).deliver(CLOSED)
    assert len(receiver.deliveries) == 1
    assert "secret answer" not in str(failed.value)


async def test_an_answer_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that hangs costs one bounded wait."""
    monkeypatch.setattr(http_post.post_json, "__kwdefaults__", {"timeout_seconds": 0.1})
    async with web_receiver(hangs=True) as receiver:
        with pytest.raises(NotDelivered, match="no answer within"):
            await SlackChannel(receiver.url).deliver(CLOSED)


@pytest.fixture
def dead_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


async def test_a_failure_never_names_the_address(dead_port: int) -> None:
    """A webhook's path and a mail server's password stay out of every error, cause and context included."""
    server = parse_mail_server(f"smtp://user:hush-hush@127.0.0.1:{dead_port}")
    destinations: list[Destination] = [
        Webhook(f"http://127.0.0.1:{dead_port}/hush-hush", SECRET),
        SlackChannel(f"http://127.0.0.1:{dead_port}/hush-hush"),
        SlackChannel("http://[hush-hush/"),
        MailBox(server, sender="billing@shop.example", recipients=["ops@shop.example"]),
    ]
    for destination in destinations:
        with pytest.raises(NotDelivered) as failed:
            await destination.deliver(CLOSED)
        assert "hush-hush" not in f"{failed.value!r} {destination!r} {server!r}"
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__


async def test_a_channel_gets_plain_text() -> None:
    """What looks like a link or a mention arrives as its characters."""
    hostile = {**CLOSED, "kind": "run_held", "hold": "<!channel> & <https://evil.example|click>"}
    async with web_receiver() as receiver:
        await SlackChannel(receiver.url).deliver(hostile)
    [delivery] = receiver.deliveries
    document = json.loads(delivery.body)
    assert list(document) == ["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in document["text"]
    assert "<" not in document["text"]


def test_the_wording_of_a_close() -> None:
    """People read counts, sums, the check and the time; of a double charge they read first of all."""
    assert text_of(CLOSED).splitlines() == [
        f"{RUN} has closed",
        "12 lines: 2 needs customer, 10 succeeded",
        "paid or on its way 1000.00 USD, planned 1200.00 USD, cap 1320.00 USD",
        "no double charge was found at Stripe",
        "it took 63 s, longer than its limit",
    ]
    doubled = {**CLOSED, "double_charge_check": "found", "double_charges": 2}
    alarm = f"DOUBLE CHARGES: 2 lines paid more than once; chargeonce verify {RUN}"
    assert text_of(doubled).splitlines()[1] == alarm
    unchecked = {**CLOSED, "double_charge_check": "not_checked"}
    assert "could not be asked" in text_of(unchecked)


def mailbox(receiver: MailReceiver, *recipients: str, scheme: str = "smtp", user: str = "") -> MailBox:
    """Return a mailbox behind a receiver."""
    server = parse_mail_server(f"{scheme}://{user}127.0.0.1:{receiver.port}")
    return MailBox(server, sender="Billing <billing@shop.example>", recipients=recipients)


async def test_mail_is_handed_in() -> None:
    """One mail for all recipients, with an id of its own that a repetition repeats."""
    async with mail_receiver() as receiver:
        box = mailbox(receiver, "ops@shop.example", "finance@shop.example", user="user:hush-hush@")
        assert await box.deliver(CLOSED) == "taken for 2 of 2 recipients"
        await box.deliver(CLOSED)
    first, second = (message_from_string(text, policy=policy.default) for text in receiver.mails)
    assert receiver.recipients == ["ops@shop.example", "finance@shop.example"] * 2
    assert first["Subject"] == f"chargeonce: {RUN} has closed"
    assert first["To"] == "ops@shop.example, finance@shop.example"
    assert first["Message-ID"] == second["Message-ID"]
    assert "12 lines: 2 needs customer, 10 succeeded" in first.get_content()
    assert any(line.startswith("AUTH PLAIN") for line in receiver.heard)


async def test_no_text_adds_a_header() -> None:
    """Line ends in what a notification says stay inside the line that they are in."""
    hostile = {**CLOSED, "run": "run\r\nBcc: victim@other.example\r\n\r\nbody", "id": "1\r\nX-Evil: 1"}
    async with mail_receiver() as receiver:
        await mailbox(receiver, "ops@shop.example").deliver(hostile)
    [mail_text] = receiver.mails
    headers = message_from_string(mail_text, policy=policy.default)
    assert headers["Bcc"] is None
    assert headers["X-Evil"] is None
    assert receiver.recipients == ["ops@shop.example"]


async def test_a_mail_that_somebody_got_is_delivered() -> None:
    """One refused recipient does not make the others get it again and again; all refused is a failure."""
    async with mail_receiver(refuses=frozenset({"gone@shop.example"})) as receiver:
        both = mailbox(receiver, "gone@shop.example", "ops@shop.example")
        assert await both.deliver(CLOSED) == "taken for 1 of 2 recipients"
        with pytest.raises(NotDelivered, match="SMTPRecipientsRefused"):
            await mailbox(receiver, "gone@shop.example").deliver(CLOSED)


async def test_a_mail_that_is_refused_is_not_delivered() -> None:
    """The server's no is a failure with its code, and without its words."""
    async with mail_receiver(data_answer="452 hush-hush") as receiver:
        with pytest.raises(NotDelivered, match="SMTP 452") as failed:
            await mailbox(receiver, "ops@shop.example").deliver(CLOSED)
    assert "hush-hush" not in str(failed.value)


async def test_no_password_without_tls() -> None:
    """Where TLS was asked for and is not to be had, neither password nor mail is sent."""
    async with mail_receiver() as receiver:
        box = mailbox(receiver, "ops@shop.example", scheme="smtp+starttls", user="user:hush-hush@")
        with pytest.raises(NotDelivered, match="SMTPNotSupportedError"):
            await box.deliver(CLOSED)
    assert receiver.mails == []
    assert not any(line.startswith(("AUTH", "MAIL")) for line in receiver.heard)


async def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that takes the connection and never speaks costs one bounded wait."""
    monkeypatch.setattr(mail, "TRY_SECONDS_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = parse_mail_server(f"smtp://127.0.0.1:{silent.getsockname()[1]}")
        box = MailBox(server, sender="billing@shop.example", recipients=["ops@shop.example"])
        with pytest.raises(NotDelivered):
            await box.deliver(CLOSED)


@asynccontextmanager
async def dripping_server(beginning: bytes) -> AsyncIterator[int]:
    """Yield the port of a server that begins like this, and then sends a byte every now and then."""
    clients: set[asyncio.Task[None]] = set()

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        clients.add(task)
        writer.write(beginning)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while True:
                writer.write(b"2")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


@pytest.mark.parametrize("scheme", ["smtp", "smtps", "http"])
async def test_a_server_that_drips_is_cut_off(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time and the answer never: the whole try is bounded, and no thread stays behind."""
    monkeypatch.setattr(mail, "SESSION_SECONDS_MAX", 0.3)
    monkeypatch.setattr(mail, "TRY_SECONDS_MAX", 0.3)
    monkeypatch.setattr(http_post.post_json, "__kwdefaults__", {"timeout_seconds": 0.3})
    async with dripping_server(b"HTTP/1.1 200 OK\r\nX: " if scheme == "http" else b"220") as port:
        box: Destination = SlackChannel(f"http://127.0.0.1:{port}")
        if scheme != "http":
            server = parse_mail_server(f"{scheme}://127.0.0.1:{port}")
            box = MailBox(server, sender="billing@shop.example", recipients=["ops@shop.example"])
        await asyncio.gather(*(_refuse(box) for _ in range(3)))
        async with asyncio.timeout(5):
            while any(thread.name == "mail" for thread in threading.enumerate()):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)


async def _refuse(box: Destination) -> None:
    with pytest.raises(NotDelivered):
        await box.deliver(CLOSED)


@pytest.mark.parametrize(
    ("url", "scheme", "port"),
    [
        ("smtp://mail.example", "smtp", 25),
        ("smtp+starttls://user:p%40ss@mail.example", "smtp+starttls", 587),
        ("smtps://user:p%40ss@mail.example:4465", "smtps", 4465),
    ],
)
def test_a_mail_server_is_told_by_a_url(url: str, scheme: str, port: int) -> None:
    """Scheme and port say how mail is handed in; a password is decoded and never shown."""
    server = parse_mail_server(url)
    assert (server.scheme, server.host, server.port) == (scheme, "mail.example", port)
    assert server.password in {None, "p@ss"}
    assert "p@ss" not in repr(server)


@pytest.mark.parametrize(
    "url",
    ["", "mail.example", "http://mail.example", "smtp://", "smtp://user:hush-hush@mail.example",
     "smtp://user:hush-hush@mail.example:99999", "smtp://[hush-hush"],
)  # fmt: skip
def test_a_url_that_can_not_be_right_is_refused_unrepeated(url: str) -> None:
    """Neither nonsense nor a password in the clear gets by, and the refusal repeats nothing."""
    with pytest.raises(RefusedToStart) as refused:
        parse_mail_server(url)
    assert "hush-hush" not in str(refused.value)


@pytest.mark.parametrize("address", ["", "nobody", "a@b.example\r\nBcc: c@d.example", "a@b@c"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """A configured recipient can't bring a header along."""
    server = parse_mail_server("smtp://mail.example")
    with pytest.raises(RefusedToStart):
        MailBox(server, sender="billing@shop.example", recipients=[address])
    with pytest.raises(RefusedToStart):
        MailBox(server, sender=address, recipients=["ops@shop.example"])


def test_the_wording_of_the_end_of_the_charging() -> None:
    """People read how the charging ended, what is still waited for, and that nobody has to do anything."""
    waiting = {
        "retry": {"lines": 2, "until": "2031-03-08T00:00:00+00:00"},
        "debit": {"lines": 1, "until": "x"},
    }
    lines = text_of({**CLOSED, "kind": "charging_closed", "waiting": waiting}).splitlines()
    assert lines[0] == f"the charging of {RUN} is over"
    assert "2 lines will be tried again, until 2031-03-08 at most" in lines
    assert lines[-1].endswith(f"chargeonce run show {RUN}")


def test_the_wording_of_a_hand_over() -> None:
    """Which PaymentIntents are to be finished, the first twenty by name."""
    named = [f"pi_{number}" for number in range(22)]
    told = text_of({**CLOSED, "kind": "customer_needed", "customers": 22, "payment_intents": named})
    assert "22 customers have to authenticate or pay on session: pi_0, pi_1," in told
    assert "pi_19 and 2 more" in told
