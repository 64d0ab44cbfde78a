"""What the receiver believes, what it answers, and what it leaves in the table."""

import asyncio
import json

import aiohttp
import pytest

from deploy.postgres import Database, PostgresServer
from tests.activities.scene import ACCOUNT, Scene
from tests.proxy.secret_scan import malformed_requests, send_raw
from tests.web.postbox import SECRET, open_postbox, settings_for
from worker.web.app import HEALTH_PATH, WEBHOOK_PATH
from worker.web.settings import load_web_settings
from workflows.domain.errors import RefusedToStart
from workflows.domain.webhook_signature import sign

PLATFORM, CONNECTED = "acct_platform", "acct_connected"


def letter(number: int = 1, **fields: object) -> bytes:
    """Return an event about a PaymentIntent, as Stripe writes it."""
    subject = {"object": "payment_intent", "id": f"pi_{number}", "client_secret": "pi_1_secret_synthetic"}
    event: dict[str, object] = {
        "id": f"evt_{number}",
        "object": "event",
        "type": "payment_intent.succeeded",
        "created": 1_930_089_600,
        "livemode": False,
        "data": {"object": subject},
    }
    return json.dumps({**event, **fields}).encode()


async def rows(scene: Scene) -> list[str]:
    """Return the ids of what was kept."""
    return [row["event_id"] for row in await scene.pool.fetch("SELECT event_id FROM inbox_events ORDER BY 1")]


async def test_a_signed_event_is_kept_and_acknowledged(scene: Scene) -> None:
    """One row with what is to be looked at, and 200 once it is committed."""
    async with open_postbox(settings_for(scene.database)) as box:
        assert await box.post(letter()) == 200
    row = await scene.pool.fetchrow("SELECT * FROM inbox_events")
    assert row is not None
    assert (row["event_id"], row["account"], row["payment_intent"], row["state"]) == (
        "evt_1",
        ACCOUNT.id,
        "pi_1",
        "waiting",
    )
    assert "secret" not in repr(row)


async def test_what_is_refused_leaves_no_row(scene: Scene) -> None:
    """Bad signature, old or future time, not JSON, no event, another kind: 400 each, and no row."""
    body = letter()
    refused = {
        "signed by somebody else": {"body": body, "secret": "whsec_of_somebody_else"},
        "signed six minutes ago": {"body": body, "age_seconds": 360},
        "signed six minutes ahead": {"body": body, "age_seconds": -360},
        "not signed": {"body": body, "header": ""},
        "signed over another body": {"body": body, "header": sign(SECRET.encode(), b"x", at_epoch_seconds=0)},
        "not JSON": {"body": b"{"},
        "not an event": {"body": b"{}"},
        "a live one": {"body": letter(livemode=True)},
        "another account's": {"body": letter(account="acct_of_somebody_else")},
    }
    async with open_postbox(settings_for(scene.database)) as box:
        for name, request in refused.items():
            assert await box.post(**request) == 400, name  # type: ignore[arg-type]
    assert await rows(scene) == []


async def test_a_body_above_the_limit_is_not_read(scene: Scene) -> None:
    """413 before it is in memory, and the next one is taken as ever."""
    async with open_postbox(settings_for(scene.database, body_bytes_max=4_096)) as box:
        assert await box.post(letter(padding="x" * 5_000)) == 413
        assert await box.post(letter()) == 200
    assert await rows(scene) == ["evt_1"]


async def test_only_the_endpoint_is_there(scene: Scene) -> None:
    """Other paths and methods are nothing's business, and health says that it lives."""
    async with open_postbox(settings_for(scene.database)) as box:
        assert await box.post(letter(), path="/") == 404
        async with box.session.get(box.url + WEBHOOK_PATH) as response:
            assert response.status == 405
        async with box.session.get(box.url + HEALTH_PATH) as response:
            assert await response.json() == {"alive": True}


async def test_what_is_hardly_http_is_refused_without_a_word(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A status with no body, one line of a log for each, and neither repeats what came."""
    requests = malformed_requests(SECRET)
    async with open_postbox(settings_for(scene.database)) as box:
        answers = await asyncio.gather(*(send_raw(box.url, request) for request in requests.values()))
    for name, answer in zip(requests, answers, strict=True):
        assert answer.partition(b"\r\n\r\n")[2] == b"", name
        assert int(answer.split()[1]) in {400, 404, 417}, name
    assert SECRET not in b"".join(answers).decode() + caplog.text
    assert "Traceback" not in caplog.text


async def test_a_rolled_secret_is_good_beside_the_old_one(scene: Scene) -> None:
    """Rotation: both are configured for as long as Stripe signs with both, and then one."""
    both = settings_for(scene.database, (ACCOUNT.id, SECRET), (ACCOUNT.id, "whsec_second"))
    async with open_postbox(both) as box:
        assert await box.post(letter(1)) == 200
        assert await box.post(letter(2), secret="whsec_second") == 200
    async with open_postbox(settings_for(scene.database, (ACCOUNT.id, "whsec_second"))) as box:
        assert await box.post(letter(3)) == 400
        assert await box.post(letter(4), secret="whsec_second") == 200
    assert await rows(scene) == ["evt_1", "evt_2", "evt_4"]


async def test_whose_event_it_is_the_secret_says(scene: Scene) -> None:
    """Each secret speaks for its endpoint's account; a platform's also for those connected to it."""
    settings = settings_for(
        scene.database,
        (PLATFORM, "whsec_platform"),
        ("acct_other", "whsec_other"),
        connected_accounts=(CONNECTED,),
    )
    async with open_postbox(settings) as box:
        assert await box.post(letter(1), secret="whsec_platform") == 200
        assert await box.post(letter(2, account=CONNECTED), secret="whsec_platform") == 200
        assert await box.post(letter(3), secret="whsec_other") == 200
        assert await box.post(letter(4, account=PLATFORM), secret="whsec_other") == 400
        assert await box.post(letter(5, account="acct_stranger"), secret="whsec_platform") == 400
    kept = await scene.pool.fetch("SELECT account FROM inbox_events ORDER BY event_id")
    assert [row["account"] for row in kept] == [PLATFORM, CONNECTED, "acct_other"]


async def test_the_same_event_many_times_is_one_row(scene: Scene) -> None:
    """Incident I12: three at once to two processes, one after a restart, one through a second endpoint."""
    settings = settings_for(scene.database, (ACCOUNT.id, SECRET), (ACCOUNT.id, "whsec_second"))
    async with open_postbox(settings) as one, open_postbox(settings) as two:
        statuses = list(await asyncio.gather(*(box.post(letter()) for box in (one, two, one))))
    async with open_postbox(settings) as again:
        statuses += [await again.post(letter()), await again.post(letter(), secret="whsec_second")]
        assert await again.post(letter(), secret="whsec_of_somebody_else") == 400
        assert await again.post(letter(), age_seconds=301) == 400
    assert statuses == [200] * 5
    assert await rows(scene) == ["evt_1"]


async def test_events_that_come_together_share_a_commit(scene: Scene) -> None:
    """A burst costs transactions by the batch, and each event is acknowledged for itself."""
    before = await scene.owner.fetchval("SELECT pg_current_xact_id()::text::bigint")
    async with open_postbox(settings_for(scene.database)) as box:
        statuses = await asyncio.gather(*(box.post(letter(number)) for number in range(200)))
    after = await scene.owner.fetchval("SELECT pg_current_xact_id()::text::bigint")
    assert statuses == [200] * 200
    assert len(await rows(scene)) == 200
    assert after - before < 150


async def test_a_database_that_is_down_is_503_and_then_200(postgres_server: PostgresServer) -> None:
    """Nothing is acknowledged that is not kept; when the database is back, so is the receiver."""
    name = "ledger_that_goes_away"
    database = await postgres_server.create_database(name, template="ledger_template")
    try:
        async with open_postbox(settings_for(database, commit_seconds=2.0)) as box:
            assert await box.post(letter(1)) == 200
            await forbid_connections(postgres_server, name, "false")
            assert await box.post(letter(2)) == 503
            assert await box.post(letter(2)) == 503
            await forbid_connections(postgres_server, name, "true")
            assert await box.post(letter(2)) == 200
    finally:
        await postgres_server.drop_database(name)


async def forbid_connections(server: PostgresServer, name: str, allowed: str) -> None:
    """Let nobody connect to a database, and end whoever is; or let them in again."""
    connection = await server.connect_superuser()
    try:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")
        if allowed == "false":
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
            )
    finally:
        await connection.close()


async def test_a_commit_that_takes_too_long_is_503(scene: Scene) -> None:
    """A table that somebody holds: Stripe is told to come again, and nobody waits without end."""
    async with open_postbox(settings_for(scene.database, commit_seconds=0.3)) as box:
        async with scene.owner.transaction():
            await scene.owner.execute("LOCK TABLE inbox_events IN ACCESS EXCLUSIVE MODE")
            assert await box.post(letter()) == 503
        assert await box.post(letter()) == 200
    assert await rows(scene) == ["evt_1"]


async def test_a_body_that_dribbles_is_given_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who announces a body and does not send it holds a connection for so long and no longer."""
    monkeypatch.setattr("worker.web.app.READ_SECONDS", 0.2)
    async with open_postbox(settings_for(scene.database)) as box:
        host, port = box.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {WEBHOOK_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nabc"
        writer.write(head.encode())
        assert b" 408 " in await reader.readline()
        writer.close()
        assert await box.post(letter()) == 200


def test_settings_name_what_is_wrong_and_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    """A secret without its account can't be right, and no refusal repeats it."""
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", database.web_url)
    for wrong in ("whsec_alone", "acct_1=sk_test_key", "acct_1=", ""):
        monkeypatch.setenv("CHARGEONCE_WEBHOOK_SECRETS", wrong)
        with pytest.raises(RefusedToStart, match="CHARGEONCE_WEBHOOK_SECRETS") as refusal:
            load_web_settings()
        assert not wrong or wrong not in str(refusal.value)
    monkeypatch.setenv("CHARGEONCE_WEBHOOK_SECRETS", " acct_1=whsec_a , acct_1=whsec_b ")
    settings = load_web_settings(live=True)
    assert [(account, secret.get_secret_value()) for account, secret in settings.webhook_secrets] == [
        ("acct_1", "whsec_a"),
        ("acct_1", "whsec_b"),
    ]
    assert settings.live
    assert "whsec_a" not in repr(settings)


async def test_a_taken_port_is_refused_in_words(scene: Scene) -> None:
    """The process says what stands in its way."""
    async with open_postbox(settings_for(scene.database)) as box:
        port = int(box.url.rpartition(":")[2])
        with pytest.raises(RefusedToStart, match="can't listen"):
            async with open_postbox(settings_for(scene.database, port=port)):
                pass
        async with aiohttp.ClientSession() as session, session.get(box.url + HEALTH_PATH) as response:
            assert response.status == 200
