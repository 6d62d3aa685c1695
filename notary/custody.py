"""Who holds each item after each occurrence, and what can't be: doubts for people, by which nothing is refused."""

import math
from collections import Counter

from .families import holder, names_of
from .joining import united
from .shape import fold

PARTY = "the party"
_TOGETHER = ("party", PARTY, "group", "the group", "everyone", "everybody", "all", "us", "we")
_COINS = set("coin coins gold silver copper platinum electrum pieces gp sp cp pp ep".split())
_GIVES = {"lost": "loses {}", "consumed": "uses {} up", "transferred": "hands {} over"}


def custody(artifacts: list, party: list) -> dict:
    """The artifact `item-custody`; several artifacts of a family are several sessions, followed in their order."""
    things = united(records_of(artifacts, "item-registry"))
    thing_of = {fold(name): thing for thing in things for one in thing for name in names_of(one)}
    member = dict.fromkeys(_TOGETHER, PARTY) | member_names(party)
    ways = {}
    for record in records_of(artifacts, "item-occurrences"):
        thing = thing_of.get(fold(record["item"]), [])
        name = thing[-1]["name"] if thing else record["item"]
        ways.setdefault(fold(name), (name, thing, []))[2].append(record)
    records = [follow(*way, member) for way in ways.values()]
    about = {"artifact": "item-custody", "schema_version": 1, "source_id": artifacts[-1]["source_id"]}
    return {**about, "records": records}


def member_names(party: list) -> dict:
    """Each member's name by all the names that the member has."""
    return {fold(name): one["name"] for one in party for name in (one["name"], *one.get("aliases", ()))}


def records_of(artifacts: list, family: str) -> list:
    return [record for one in artifacts if one["artifact"] == family for record in one["records"]]


def follow(name: str, thing: list, occurrences: list, member: dict) -> dict:
    """One item's record: its steps and doubts. `thing` is what the registry has of it, `member` the party by name."""
    item, people, steps, doubts = Item(name, thing, occurrences), dict(member), [], []
    for record in occurrences:
        giver, taker = (people.setdefault(fold(one), one) for one in (holder(record, "from"), holder(record, "to")))
        if doubt := item.step(record["kind"], giver, taker, record["quantity"]):
            doubts.append({"occurrence": record["id"], "text": doubt})
        holders = ", ".join(item.held) or None
        steps.append({"occurrence": record["id"], "unit_id": record["earliest_unit_id"], "holder": holders})
    return {"item": name, "steps": steps, "doubts": doubts}


class Item:
    """How much of an item each holder is known to have (`held`), and where it is when nobody has any (`gone`)."""

    def __init__(self, name: str, thing: list, occurrences: list):
        names = [name, *(written for one in thing for written in names_of(one))]
        last = {fold(written).rpartition(" ")[2] for written in names}
        plural = any(word.endswith("s") and not word.endswith("ss") for word in last)
        self.coins = any(one["category"] == "currency" for one in thing) or not _COINS.isdisjoint(last)
        self.several = self.coins or plural or any((record["quantity"] or 1) > 1 for record in occurrences)
        self.held, self.gone = Counter(), ""  # nothing is told yet: who has it had it before

    def step(self, kind: str, giver: str | None, taker: str | None, quantity: int | None) -> str | None:
        """Let it happen; the doubt about it, if there is one. Without a number one goes, but any number comes."""
        has = sum(self.held.values()) if giver == PARTY else sum(self.held[one] for one in {giver, PARTY})
        doubt = self._doubt(kind, giver, taker, quantity or 1, has)
        told = bool(self.held) or not self.several  # a purse or a quiver of before never runs out
        if kind == "discovered":
            self.gone = "nobody has taken it yet"
        elif not self.several:
            self.held.clear()
        elif giver:
            self._take_away(giver, quantity or 1)
        if taker:
            self.held[taker] += quantity or (1 if giver and 0 < has < math.inf else math.inf)
        if giver and told and not self.held:
            self.gone = "it was used up before" if kind == "consumed" else f"{giver} lost it before"
        return doubt

    def _doubt(self, kind: str, giver: str | None, taker: str | None, quantity: int, has: float) -> str | None:
        where = f"it is with {', '.join(self.held)}" if self.held else self.gone
        if self.coins or not where:  # nobody knows what was in a purse
            return None
        if giver:
            gives = _GIVES[kind].format(quantity if quantity > 1 else "it")
            return f"{giver} {gives}, but {f'has only {has}' if has else where}." if has < quantity else None
        if self.several or not self.held or PARTY in (taker, *self.held):
            return None
        return f"{f'{taker} takes it' if taker else 'It is found'}, but {where} already."

    def _take_away(self, giver: str, quantity: int) -> None:
        for one in [*self.held] if giver == PARTY else [giver, PARTY]:
            taken = min(quantity, self.held[one])
            self.held[one] -= taken
            quantity -= taken
        self.held = +self.held  # without those who have none left
