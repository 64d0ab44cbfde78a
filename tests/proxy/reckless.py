"""A billing client that breaks every rule, and what it may never bring about: a case, drawn from a seed."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.proxy.stage import Said, issue
from tests.proxy.two_proxies import TwoProxies
from workflows.domain.vault_keys import parse_vault_key

TRIES = 6
SETTLE_TRIES = 5
UNKNOWN = frozenset({500, 502, 503, 504})
CALL_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass
class Payment:
    """One amount due, and every PaymentIntent that was ever made for it."""

    number: int
    amount: int
    card: str
    intents: list[str] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)


@dataclass
class Case:
    """Amounts due, a cap, and clients that call without any discipline."""

    world: TwoProxies
    seed: int
    dice: random.Random
    payments: list[Payment]
    cap: int
    key: str
    budget: str
    began_at: int  # of the book's movements: earlier ones are of other cases
    sent: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)
    undetermined: set[str] = field(default_factory=set)

    @property
    def customer(self) -> str:
        """Every case has a customer of its own, by which the book is read."""
        return f"cus_case{self.seed}"

    @property
    def good_card(self) -> str:
        """A card that pays."""
        return f"pm_card_visa_case{self.seed}"

    @property
    def bad_card(self) -> str:
        """A card that declines."""
        return f"pm_card_chargeCustomerFail_case{self.seed}"

    @property
    def moved(self) -> int:
        """What the simulator's book says about this case."""
        movements = self.world.sim.movements[self.began_at :]
        return sum(entry.amount for entry in movements if entry.customer == self.customer)

    async def post(self, path: str, parameters: dict[str, object], key: str) -> Said | None:
        """Send, or send again, and note whether the outcome is known. None: no answer came."""
        path, parameters = self.sent.setdefault(key, (path, parameters))
        try:
            said = await self.world.caller(self.key, self.dice).post(path, parameters, Idempotency_Key=key)
        except CALL_ERRORS:
            said = None
        if said is not None and not isinstance(said.body, dict):
            said = None  # nobody can read it
        if said is not None and said.status not in UNKNOWN and said.status not in {409, 429}:
            self.undetermined.discard(key)
        elif said is None or said.code not in {"upstream_not_reached", "spend_cap_exceeded", "lock_timeout"}:
            self.undetermined.add(key)
        return said

    async def misbehave(self) -> None:
        """Do a number of things that a billing client should not do, some of them well."""
        flows: list[Callable[[Payment], Awaitable[None]]] = [
            self._pay_well,
            self._pay_anew,
            self._pay_anew,
            self._confirm_again,
            self._confirm_twice,
            self._confirm_twice,
            self._pay_in_one_call,
            self._change_the_amount,
            self._authorize,
            self._cancel,
        ]
        for _ in range(TRIES):
            await self.dice.choice(flows)(self.dice.choice(self.payments))

    async def settle(self) -> None:
        """What reconciliation does once faults are over: ask again, or make sure that it can't happen."""
        left = sorted(self.undetermined)
        for _ in range(SETTLE_TRIES):  # on a busy machine an answer may be late again
            left = [key for key in left if await self._is_left(key)]
        held = {intent for payment in self.payments for intent in payment.authorized}
        for intent in sorted(held):
            await self.rule_out(intent, only={"requires_capture"})

    async def _is_left(self, key: str) -> bool:
        path, parameters = self.sent[key]
        said = await self.post(path, parameters, key)
        if key not in self.undetermined or (said is not None and said.code == "spend_cap_exceeded"):
            return False
        if said is not None and path.endswith("/confirm"):
            await self.rule_out(path.split("/")[3])
            return False
        return True

    async def rule_out(self, intent: str, only: set[str] | None = None) -> None:
        """Cancel a PaymentIntent unless it is paid; `only` in some statuses."""
        caller = self.world.caller(self.key, self.dice)
        found = await caller.get(f"/v1/payment_intents/{intent}")
        if found.status == 200 and (only is None or found.body["status"] in only):
            await caller.post(f"/v1/payment_intents/{intent}/cancel")

    async def top_up(self) -> list[int]:
        """Pay what is due until the cap says no; return the amounts that it refused."""
        refused = []
        for payment in self.payments:
            for _ in range(SETTLE_TRIES):
                said = await self._pay(payment, f"top_{self.seed}_{payment.number}", self.good_card)
                if said is not None and said.status not in UNKNOWN:
                    break
            if said is not None and said.code == "spend_cap_exceeded":
                refused.append(payment.amount)
            else:
                assert said is not None
                assert said.status == 200, (self.seed, said)
        return refused

    def _random_key(self) -> str:
        return f"k{self.seed}_{self.dice.getrandbits(40):x}"

    async def _create(self, payment: Payment, key: str, **more: object) -> str | None:
        parameters = {
            "amount": payment.amount, "currency": "usd",
            "customer": self.customer, "payment_method": payment.card,
        }  # fmt: skip
        made = await self.post("/v1/payment_intents", parameters | more, key)
        if made is None or made.status != 200:
            return None
        payment.intents.append(made.body["id"])
        return str(made.body["id"])

    async def _confirm(self, intent: str, key: str, card: str) -> Said | None:
        parameters: dict[str, object] = {"off_session": "true", "payment_method": card}
        return await self.post(f"/v1/payment_intents/{intent}/confirm", parameters, key)

    async def _pay(self, payment: Payment, name: str, card: str) -> Said | None:
        intent = await self._create(payment, f"create_{name}", payment_method=card)
        return await self._confirm(intent, f"confirm_{name}", card) if intent else None

    async def _pay_well(self, payment: Payment) -> None:
        for _ in range(3):
            said = await self._pay(payment, f"{self.seed}_{payment.number}", payment.card)
            if said is not None and said.status in {200, 402}:
                return

    async def _pay_anew(self, payment: Payment) -> None:
        await self._pay(payment, self._random_key(), payment.card)

    async def _confirm_again(self, payment: Payment) -> None:
        if payment.intents:
            card = self.dice.choice([self.good_card, self.bad_card])
            await self._confirm(self.dice.choice(payment.intents), self._random_key(), card)

    async def _confirm_twice(self, payment: Payment) -> None:
        """T11: the first confirm may still be paid when the second is declined."""
        intent = await self._create(payment, self._random_key())
        if intent:
            await self._confirm(intent, self._random_key(), self.good_card)
            await self._confirm(intent, self._random_key(), self.bad_card)

    async def _pay_in_one_call(self, payment: Payment) -> None:
        await self._create(payment, self._random_key(), confirm="true", off_session="true")

    async def _change_the_amount(self, payment: Payment) -> None:
        intent = await self._create(payment, self._random_key())
        if intent:
            amount = payment.amount + self.dice.randrange(1, 100)
            changing = self.post(f"/v1/payment_intents/{intent}", {"amount": amount}, self._random_key())
            confirming = self._confirm(intent, self._random_key(), payment.card)
            await asyncio.gather(*self.dice.sample([changing, confirming], 2))
            await self._confirm(intent, self._random_key(), payment.card)

    async def _authorize(self, payment: Payment) -> None:
        intent = await self._create(payment, self._random_key(), capture_method="manual")
        if intent:
            payment.authorized.append(intent)
            await self._confirm(intent, self._random_key(), payment.card)
            part = self.dice.randrange(1, payment.amount + 1)
            path = f"/v1/payment_intents/{intent}/capture"
            await self.post(path, {"amount_to_capture": part}, self._random_key())

    async def _cancel(self, payment: Payment) -> None:
        if payment.intents:
            path = f"/v1/payment_intents/{self.dice.choice(payment.intents)}/cancel"
            await self.post(path, {}, self._random_key())


async def draw_case(world: TwoProxies, seed: int) -> Case:
    """Draw amounts, cards and a cap; issue the key and seed the customer."""
    dice = random.Random(seed)
    cards = f"pm_card_chargeCustomerFail_case{seed}", f"pm_card_visa_case{seed}"
    payments = [
        Payment(number, dice.randrange(50, 400), dice.choices(cards, (1, 4))[0])
        for number in range(dice.randrange(3, 8))
    ]
    total = sum(payment.amount for payment in payments)
    cap = int(total * dice.choice([dice.uniform(0.2, 1.5), dice.uniform(3, 9)]))
    key = await issue(world.database, {"usd": cap})
    known = parse_vault_key(key)
    assert known is not None
    case = Case(world, seed, dice, payments, cap, key, known.key_id, len(world.sim.movements))
    world.sim.seed(case.customer, case.good_card, case.bad_card)
    return case


def draw_faults(dice: random.Random) -> list[dict[str, Any]]:
    """Draw a fault plan: lost on either side of the booking, stored and unstored failures, late ones."""
    intents, confirm = "^/v1/payment_intents", "/confirm$"

    def fault(name: str, place: str, path: str, probability: float, **effect: Any) -> dict[str, Any]:
        match = {"path": path, "method": "POST", "probability": probability * dice.uniform(0.3, 1.5)}
        return {"name": name, "match": match, "place": place, "effect": effect}

    return [
        fault("lost", "after", intents, 0.08, kind="drop"),
        fault("reset", "body", intents, 0.03, kind="reset"),
        fault("unsent", "before", intents, 0.05, kind="drop"),
        fault("busy", "before", intents, 0.03, kind="error", status=429),
        fault("down", "before", intents, 0.03, kind="error", status=503),
        fault("page", "after", intents, 0.03, kind="html", status=502),
        fault("stored", "before", confirm, 0.06, kind="error", status=500, stored=True, book=0.5),
        fault("late", "before", confirm, 0.12, kind="late", seconds=30),
        fault("garbage", "body", intents, 0.02, kind="garbage"),
    ]
