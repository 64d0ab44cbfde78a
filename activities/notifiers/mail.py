"""E-mail through an SMTP server.

The server's URL says how: `smtp://host:25` in the clear, `smtp+starttls://user:password@host:587` with
STARTTLS, `smtps://user:password@host:465` in TLS from the start. A password never goes over a connection in
the clear, unless the server is this machine.

`smtplib` limits each step and no session, so a server that drips keeps its thread for as long as it likes.
Here each session has a thread of its own, and nothing else waits behind it; when its time is up it is cut.
"""

import asyncio
import contextlib
import hashlib
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from urllib.parse import unquote, urlsplit

from activities.notifiers.destination import LOOPBACK_HOSTS, TRY_SECONDS_MAX, NotDelivered, Payload
from activities.notifiers.wording import headline, text_of
from workflows.domain.errors import RefusedToStart

SESSION_SECONDS_MAX = 3 * TRY_SECONDS_MAX  # each step of it may take TRY_SECONDS_MAX
SESSIONS_AT_ONCE_MAX = 4
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mail is handed in. The password never shows in a repr."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def parse_mail_server(url: str) -> MailServer:
    """Return what an SMTP URL says.

    Raises:
        RefusedToStart: It is no such URL, or would send a password in the clear. The URL is not repeated.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise RefusedToStart("the SMTP URL can't be right") from None
    if scheme not in _PORTS or not host:
        raise RefusedToStart(
            "the SMTP URL begins with smtp://, smtp+starttls:// or smtps:// and names a host"
        )
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if user is not None and scheme == "smtp" and host not in LOOPBACK_HOSTS:
        raise RefusedToStart("the SMTP URL would send a password in the clear: smtp+starttls:// or smtps://")
    return MailServer(scheme, host, port or _PORTS[scheme], user, password)


class _Session:
    """One session, which another thread may cut."""

    def __init__(self) -> None:
        self.is_cut = False
        self.connection: smtplib.SMTP | None = None

    def cut(self) -> None:
        """End the session now, wherever it is; a step that has not begun never does."""
        self.is_cut = True
        sock = self.connection.sock if self.connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def refuse_cut(self) -> None:
        """Raise SMTPServerDisconnected where the session has been cut."""
        if self.is_cut:
            raise smtplib.SMTPServerDisconnected("its time was up")


class _Connection(smtplib.SMTP):
    """A connection that is part of a session from its first byte on."""

    def __init__(self, session: _Session, server: MailServer, domain: str) -> None:
        self._session = session
        session.connection = self
        super().__init__(server.host, server.port, domain, timeout=TRY_SECONDS_MAX)

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer, unless the session was cut before there was a socket to shut."""
        self._session.refuse_cut()
        return super().getreply()


class _TlsConnection(smtplib.SMTP_SSL):
    """The same in TLS."""

    def __init__(self, session: _Session, server: MailServer, domain: str) -> None:
        self._session = session
        session.connection = self
        context = ssl.create_default_context()
        super().__init__(server.host, server.port, domain, timeout=TRY_SECONDS_MAX, context=context)

    def getreply(self) -> tuple[int, bytes]:
        """See `_Connection`."""
        self._session.refuse_cut()
        return super().getreply()


class MailBox:
    """People who read mail."""

    name = "email"

    def __init__(self, server: MailServer, *, sender: str, recipients: Sequence[str]) -> None:
        """Keep the addresses. Raises RefusedToStart where one of them is none."""
        for address in (sender, *recipients):
            if parseaddr(address)[1].count("@") != 1 or not address.isprintable():
                raise RefusedToStart("an e-mail address of the notifications can't be right")
        if not recipients:
            raise RefusedToStart("the notifications by e-mail have no recipient")
        self._server = server
        self._sender = sender
        self._recipients = tuple(recipients)
        self._places = asyncio.Semaphore(SESSIONS_AT_ONCE_MAX)

    async def deliver(self, payload: Payload) -> str:
        """Hand the mail in within SESSION_SECONDS_MAX in all. Raises NotDelivered."""
        message, session = self._message(payload), _Session()
        try:
            async with asyncio.timeout(SESSION_SECONDS_MAX), self._places:
                taken_for = await _in_own_thread(lambda: self._hand_in(session, message))
        except TimeoutError:
            raise NotDelivered("no answer in time") from None
        except smtplib.SMTPResponseException as error:
            raise NotDelivered(f"SMTP {error.smtp_code} ({type(error).__name__})") from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise NotDelivered(f"the mail was not taken ({type(error).__name__})") from None
        finally:
            session.cut()
        return f"taken for {taken_for} of {len(self._recipients)} recipients"

    def _message(self, payload: Payload) -> EmailMessage:
        # EmailMessage refuses line ends in a header, so no text can add headers or recipients of its own.
        message = EmailMessage()
        message["Subject"] = " ".join(f"chargeonce: {headline(payload)}".split())
        message["From"] = self._sender
        message["To"] = ", ".join(self._recipients)
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{hashlib.sha256(str(payload.get('id')).encode()).hexdigest()}@chargeonce>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(f"{text_of(payload)}\n\nid: {payload.get('id')}\n")
        return message

    def _hand_in(self, session: _Session, message: EmailMessage) -> int:
        server, domain = self._server, parseaddr(self._sender)[1].rpartition("@")[2]
        kind = _TlsConnection if server.scheme == "smtps" else _Connection
        connection: smtplib.SMTP = kind(session, server, domain)
        try:
            if server.scheme == "smtp+starttls":
                connection.starttls(context=ssl.create_default_context())
            if server.user is not None:
                connection.login(server.user, server.password or "")
            # Where it takes none of them it raises; whoever was taken would get every repetition.
            return len(self._recipients) - len(connection.send_message(message))
        finally:
            # Once the mail is taken, a server that hangs up instead of saying goodbye took it all the same.
            with contextlib.suppress(smtplib.SMTPException, OSError):
                connection.quit()
            connection.close()


def _in_own_thread(work: Callable[[], int]) -> "asyncio.Future[int]":
    """Return what comes of `work`, done in a daemon thread: nobody waits for one that is left behind."""
    future: Future[int] = Future()

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - told to whoever waits, and to nobody if nobody does
                future.set_exception(error)

    threading.Thread(target=run, name="mail", daemon=True).start()
    return asyncio.wrap_future(future)
