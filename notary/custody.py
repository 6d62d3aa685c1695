"""Who holds each item after each occurrence, and what can't be: followed by code, no model is asked.

Doubts are shown to people; nothing is changed or refused for them.
"""

import math

from .families import fold, holder, names_of

PARTY = "the party"
_TOGETHER = {"party", PARTY, "group", "the group", "everyone", "everybody", "all", "us", "we"}
_COINS = set("coin coins gold silver copper platinum electrum pieces gp sp cp pp ep".split())
_GIVES = {"lost": "loses it", "consumed": "uses it up", "transferred": "hands it over"}


def custody(artifacts: list, party: list) -> dict:
    """The artifact `item-custody`: each item's steps and doubts, in the order in which the items come up.

    Several artifacts of a family are several sessions, in their order.
    """
    things = united([record for one in artifacts if one["artifact"] == "item-registry" for record in one["records"]])
    thing_of = {fold(name): thing for thing in things for one in thing for name in names_of(one)}
    sources = [artifact for artifact in artifacts if artifact["artifact"] == "item-occurrences"]
    member = {fold(name): one["name"] for one in party for name in (one["name"], *one.get("aliases", ()))}
    ways = {}
    for record in (record for source in sources for record in source["records"]):
        thing = thing_of.get(fold(record["item"]), [])
        name = thing[-1]["name"] if thing else record["item"]
        ways.setdefault(fold(name), (name, thing, []))[2].append(record)
    records = [follow(name, thing, occurrences, member) for name, thing, occurrences in ways.values()]
    source_id = sources[-1]["source_id"] if sources else None
    return {"artifact": "item-custody", "schema_version": 1, "source_id": source_id, "records": records}


def united(records: list) -> list:
    """Registry records as lists of those of one thing: they share a name or an alias, also by way of others."""
    home, order = {}, {id(record): number for number, record in enumerate(records)}
    for record in records:
        names = [fold(name) for name in names_of(record)]
        group, *others = list({id(home[name]): home[name] for name in names if name in home}.values()) or [[]]
        group.append(record)
        for one in (one for other in others for one in other):
            group.append(one)
            names += [fold(name) for name in names_of(one)]
        home.update(dict.fromkeys(names, group))
    groups = {id(group): sorted(group, key=lambda record: order[id(record)]) for group in home.values()}
    return sorted(groups.values(), key=lambda group: order[id(group[0])])


def follow(name: str, thing: list, occurrences: list, member: dict) -> dict:
    """One item's record: its steps and doubts. `thing` is what the registry has of it, `member` the party by name."""
    item, people, steps, doubts = Item(name, thing, occurrences), {}, [], []

    def person(written):
        folded = fold(written)
        known = member.get(folded) or (PARTY if folded in _TOGETHER else people.setdefault(folded, written))
        return known if written else None

    for record in occurrences:
        giver, taker = person(holder(record, "from")), person(holder(record, "to"))
        if doubt := item.step(record["kind"], giver, taker, record["quantity"]):
            doubts.append({"occurrence": record["id"], "text": doubt})
        holders = ", ".join(item.held) or None
        steps.append({"occurrence": record["id"], "unit_id": record["earliest_unit_id"], "holder": holders})
    return {"item": name, "steps": steps, "doubts": doubts}


class Item:
    """How much of an item each holder is known to have (`held`), and where it is when nobody has any (`gone`)."""

    def __init__(self, name: str, thing: list, occurrences: list):
        names = [fold(written) for one in thing for written in names_of(one)] + [fold(name)]
        last = [name.split()[-1] for name in names if name]
        self.coins = any(one["category"] == "currency" for one in thing) or not _COINS.isdisjoint(last)
        plural = any(word.endswith("s") and not word.endswith("ss") for word in last)
        self.several = self.coins or plural or any((record["quantity"] or 1) > 1 for record in occurrences)
        self.held, self.gone = {}, ""  # "": it isn't told; whoever has it had it before

    def step(self, kind: str, giver: str | None, taker: str | None, quantity: int | None) -> str | None:
        """Let it happen; the doubt about it, if there is one."""
        doubt = self._doubt(kind, giver, taker, quantity or 1)
        if kind == "discovered":
            self.gone = "nobody has taken it yet"
        elif kind != "acquired":
            told = bool(self.held) or not self.several  # a purse or a quiver of before never runs out
            self._take_away(giver, quantity or 1)
            if told and not self.held:
                self.gone = "it was used up before" if kind == "consumed" else f"{giver} lost it before"
        if taker:
            had = self.held.get(taker, 0) if self.several else self.held.clear() or 0
            self.held[taker] = had + (quantity or (math.inf if kind == "acquired" else 1))
        return doubt

    def _doubt(self, kind: str, giver: str | None, taker: str | None, quantity: int) -> str | None:
        where = f"{', '.join(self.held)} has it" if self.held else self.gone
        if self.coins or not where:  # nobody knows what was in a purse
            return None
        if kind in _GIVES:
            has = sum(self.held.values()) if giver == PARTY else sum(self.held.get(one, 0) for one in {giver, PARTY})
            where = f"has only {has}" if has else where
            return f"{giver} {_GIVES[kind]}, but {where}." if has < quantity else None
        if self.several or not self.held or PARTY in (taker, *self.held):
            return None
        return f"{f'{taker} takes it' if taker else 'It is found'}, but {where} already."

    def _take_away(self, giver: str | None, quantity: int) -> None:
        whose = [giver, PARTY] if self.several and giver != PARTY else list(self.held)
        for one in whose:
            taken = min(quantity, self.held.get(one, 0)) if self.several else 1
            quantity -= taken
            if taken and self.held[one] > taken:
                self.held[one] -= taken
            else:
                self.held.pop(one, None)
