"""Free trees go to those who know their agents and have room, in equal shares; and hand-overs
stop where nothing is new."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub.hub.store.placement import SHARE, Offer, WorkerLoad, placed, surplus

AGENTS = ("a", "b", "c")

offers = st.builds(
    Offer,
    agents=st.none() | st.frozensets(st.sampled_from(AGENTS)),
    capacity=st.none() | st.integers(0, 30),
)
trees_by_agent = st.dictionaries(st.sampled_from(AGENTS), st.integers(0, 60))


class Farm:
    """Workers with trees, and trees that nobody owns."""

    def __init__(self, offers, free):
        self.offers = offers
        self.owned = [Counter() for _ in offers]
        self.free = Counter(free)

    def loads(self):
        counts = [owned.total() for owned in self.owned]
        return [
            WorkerLoad(number, count, offer)
            for number, (count, offer) in enumerate(zip(counts, self.offers, strict=True))
        ]

    def claim(self, number):
        share = Counter(placed(+self.free, self.loads())[number])
        self.free -= share
        self.owned[number] += share

    def hand_over(self, number):
        handed = Counter(surplus(+self.owned[number], number, self.loads(), +self.free))
        assert handed <= self.owned[number]
        assert handed.total() <= max(1, self.owned[number].total() // SHARE)
        self.owned[number] -= handed
        self.free += handed
        return handed.total()

    def beat(self, number):
        self.claim(number)
        return self.hand_over(number)


@settings(max_examples=examples(200))
@given(st.lists(offers, min_size=1, max_size=5), trees_by_agent, st.randoms())
def test_whatever_somebody_can_take_is_claimed_when_each_has_asked_once(offers, free, random):
    farm = Farm(offers, free)
    order = list(range(len(offers)))
    random.shuffle(order)
    for number in order:
        farm.claim(number)
    for offer, owned in zip(offers, farm.owned, strict=True):
        assert all(offer.takes(agent) for agent in +owned)
        assert offer.capacity is None or owned.total() <= offer.capacity
    for agent in +farm.free:
        assert not any(load.can_take(agent) for load in farm.loads())
    assert sum(farm.owned, Counter()) + farm.free == Counter(free)


@settings(max_examples=examples(100))
@given(st.integers(1, 6), st.integers(0, 500))
def test_shares_of_equal_workers_are_equal(count, trees):
    farm = Farm([Offer()] * count, {"a": trees})
    for number in range(count):
        farm.claim(number)
    shares = [owned.total() for owned in farm.owned]
    assert max(shares) - min(shares) <= 1


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(offers, trees_by_agent), min_size=1, max_size=5), trees_by_agent,
    st.randoms(),
)  # fmt: skip
def test_hand_overs_stop_where_nothing_is_new(workers, free, random):
    """Whoever asks in whatever order, however unequal it was."""
    farm = Farm([offer for offer, _ in workers], free)
    for number, (offer, trees) in enumerate(workers):
        farm.owned[number] += Counter({x: y for x, y in trees.items() if offer.takes(x)})
    for _ in range(300):
        order = list(range(len(workers)))
        random.shuffle(order)
        if not sum(map(farm.beat, order)):
            break
    else:
        raise AssertionError("they never stop")
    assert not any(farm.beat(number) for number in range(len(workers)))


def test_a_worker_that_comes_late_gets_its_share():
    farm = Farm([Offer(), Offer()], {})
    farm.owned[0]["a"] = 100
    beats = 0
    while farm.beat(0):
        farm.beat(1)
        beats += 1
    assert abs(farm.owned[0].total() - farm.owned[1].total()) <= 10
    assert beats < 30


def test_who_knows_other_agents_gets_nothing():
    farm = Farm([Offer(), Offer(agents=frozenset({"b"}))], {})
    farm.owned[0]["a"] = 100
    assert not farm.beat(0)
